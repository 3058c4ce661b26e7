"""Check that times on the GPU are possible.

No operation begins before its launch or after the call that waited for it. Kernels last as long as hardware needs, and few
operations had to be cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE, OF_GPU_RECORDS, OF_STEP_TIME
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import in_words

EARLY_NS = 20_000  # clocks of host and GPU agree to a few microseconds after the profiler's own correction
EARLY_SHARE = 0.05  # share of the checked operations: fewer may be retried or repeated correlations
LOOKED_AT = 200_000  # operations of a large recording: the share of more would be no more certain
SHORTEST_NS = 500  # an empty kernel takes 1 µs on every GPU in use
FEWEST = 20  # kernels: with fewer, the median may be that of a few fills
CUT_SHARE = 0.2  # share of all operations: above it, durations in general are wrong, and not only some of them

_EARLY = f"""SELECT count(*) FILTER (g.start_ns < c.start_ns - {EARLY_NS}), count(*) FROM gpu_ops g JOIN runtime_calls c USING (call_id)
WHERE g.device = $device AND g.gpu_op_id % greatest((SELECT count(*) FROM gpu_ops) // {LOOKED_AT}, 1) = 0"""
# A device's synchronization waits for everything launched before it. In 165 intact traces no operation ends later, except by
# 8 µs in one. Each operation is compared with the first such call after its launch. Of several GPUs, the call waits for one.
# Starts are compared, because a wrong duration is no wrong clock.
_LATE = f"""WITH waits AS (SELECT c.start_ns, c.start_ns + c.dur_ns AS end_ns FROM runtime_calls c JOIN names n USING (name_id)
    WHERE regexp_matches(n.name, '^(cuda|hip)DeviceSynchronize$|^cuCtxSynchronize$')),
launched AS (SELECT c.start_ns, g.start_ns AS begins_ns FROM gpu_ops g JOIN runtime_calls c USING (call_id))
SELECT count(*) FILTER (l.begins_ns > w.end_ns + {EARLY_NS}), max(l.begins_ns - w.end_ns) FROM launched l ASOF JOIN waits w ON l.start_ns <= w.start_ns
WHERE (SELECT count(DISTINCT device) FROM gpu_ops) = 1"""
_KERNELS = "SELECT median(dur_ns) FILTER (kind = 'kernel'), count(*) FILTER (kind = 'kernel'), count(*) FROM gpu_ops WHERE device = $device"
WITHHELD: dict[str, Effect] = dict.fromkeys((*OF_GPU_RECORDS, *OF_STEP_TIME), "unknown")
CLOCKS = "Record again, with the newest driver: the profiler maps the GPU's clock to the host's."
UNITS = "Write durations in microseconds, as torch.profiler does, or record again."


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed checks of the times of one device."""
    early, looked_at = recording.rows(_EARLY, {"device": device})[0]
    late, latest_ns = recording.rows(_LATE)[0]
    if early > EARLY_SHARE * looked_at:
        yield _disagree(early, f"{early:,} of {looked_at:,} GPU operations begin before they are launched")
    elif late:
        what = (
            f"{late:,} GPU operations begin up to {in_words(latest_ns / 1e6)} after the call that waited for them had returned"
        )
        yield _disagree(late, what)
    median, kernels, operations = recording.rows(_KERNELS, {"device": device})[0]
    if kernels >= FEWEST and median < SHORTEST_NS:
        sentence = f"Half of the kernels last less than {median:,.0f} ns; an empty kernel takes about 1,000 ns."
        headline = "The GPU's durations are too short to be true: record again."
        yield FailedCheck("durations_too_short", kernels, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)
    cut = sum(count for (count,) in recording.rows("SELECT count FROM diagnostics WHERE key = 'overrun'"))
    if cut > CUT_SHARE * operations:
        sentence = f"{cut:,} GPU operations run into the next one of their stream: their durations are wrong."
        headline = "The GPU's durations are too long to be true: record again."
        yield FailedCheck("durations_too_long", cut, sentence, UNITS, headline, "error", EVIDENCE, WITHHELD)


def _disagree(count: int, what: str) -> FailedCheck:
    headline = "The clocks of GPU and host do not agree: record again."
    sentence = f"{what}: the clocks of GPU and host do not agree."
    return FailedCheck("clocks_disagree", count, sentence, CLOCKS, headline, "error", EVIDENCE, WITHHELD)
