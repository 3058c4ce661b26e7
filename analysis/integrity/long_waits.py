"""Check that the host waits for the GPU only while recorded operations run.

A wait that continues after the last recorded operation ended shows that the GPU ran work that is not in the recording: lost records, or
another process's work. Without this check, that time would count as idle time.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE, OF_GPU_RECORDS, RECORD_FEWER_STEPS
from sawtooth.analysis.integrity.times import OF_DEVICE_TIME
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import in_words, percent

LONG_NS = 100_000  # In 35 intact traces with waits, a wait lasts at most 57 µs longer than the GPU's work.
MIN_SHARE, WRONG_SHARE = 0.05, 0.1  # Of the counted time. Above the second, numbers are wrong.
# Per counted step. A host that runs other programs resumes a few waits late, but missing work is missing from most steps.
MIN_WAITS = 0.5
# The last waits are left out: the profiler empties its buffers then. A stream may also wait for a function on the host.
WAITS = "^(cuda|cu|hip)(Stream|Device|Event|Ctx|Context)Synchronize"
_TAILS = f"""WITH named AS (SELECT c.start_ns, c.start_ns + c.dur_ns AS end_ns, n.name FROM runtime_calls c JOIN names n USING (name_id)),
waits AS (FROM named WHERE regexp_matches(name, '{WAITS}')),
counted AS (SELECT host_start_ns AS start_ns, host_end_ns AS end_ns FROM steps WHERE device = $device AND counted),
times AS (FROM counted UNION ALL SELECT min(start_ns), max(end_ns) FROM named WHERE NOT exists (FROM counted)),
ended AS (SELECT start_ns, max(start_ns + dur_ns) OVER (ORDER BY start_ns ROWS UNBOUNDED PRECEDING) AS end_ns FROM gpu_ops),
tails AS (SELECT w.end_ns - greatest(e.end_ns, w.start_ns) AS ns FROM waits w ASOF JOIN ended e ON w.end_ns > e.start_ns
    WHERE w.end_ns < (SELECT max(start_ns) FROM ended) AND exists (FROM times t WHERE w.start_ns >= t.start_ns AND w.start_ns < t.end_ns)
    AND NOT exists (FROM named WHERE regexp_matches(name, 'LaunchHostFunc|AddCallback|WaitValue')))
SELECT count(*), coalesce(sum(ns), 0), (SELECT coalesce(sum(end_ns - start_ns), 0) FROM times), (SELECT count(*) FROM counted) FROM tails WHERE ns > {LONG_NS}"""
HEADLINE = "The GPU ran work that is not recorded. Record again."
ADVICE = f"{RECORD_FEWER_STEPS} If another process uses the GPU, stop it first."


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed check if waits for the GPU often outlast its recorded work."""
    if not recording.named(WAITS):
        return
    waits, ns, time_ns, steps = (int(number) for number in recording.rows(_TAILS, {"device": device})[0])
    share = ns / time_ns if time_ns else 0.0
    if share <= MIN_SHARE or waits < MIN_WAITS * steps:
        return
    sentence = (
        f"{waits:,} waits for the GPU last longer than its recorded work, by {in_words(ns / 1e6)} in all ({percent(share)} of the time). "
        "The GPU ran something else then, which is not recorded."
    )
    effects: dict[str, Effect] = OF_GPU_RECORDS | {"best_step_time_ms": "caution"} if share > WRONG_SHARE else OF_DEVICE_TIME
    yield FailedCheck(
        "waits_outlast_work", waits, sentence, ADVICE, HEADLINE if share > WRONG_SHARE else None, "error", EVIDENCE, effects
    )
