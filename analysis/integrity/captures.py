"""Check whether the trace shows a capture into a CUDA graph instead of the run.

Kernels launched during a capture do not run, so the GPU is idle by design. Serving engines profile this phase separately.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE
from sawtooth.analysis.integrity.times import OF_DEVICE_TIME, WITHHELD
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import in_words, percent

# The trace shows the capture if this share of the launched operations is captured, or if capturing takes this share of the time.
# If the captured graph is replayed once, half of the operations run. If a loop captures only sometimes, most operations run.
CAPTURED_MAJORITY = 0.5
MIN_CAPTURE_SHARE = 0.05  # Below this share of the time, a capture hardly changes the GPU's idle time.
# Fewer captured launches are ignored: a graph of fewer kernels saves nothing, so the capture has another purpose.
MIN_LAUNCHES = 20
# Launches in the host's time of the counted steps, or in the whole recording if no step counts. Launches of all threads count,
# because autograd launches from its own thread. A capture without an end lasts until the recording ends.
_LAUNCHES = """WITH named AS (SELECT c.start_ns, c.gpu_ops, n.name FROM runtime_calls c JOIN names n USING (name_id)),
begins AS (SELECT start_ns FROM named WHERE regexp_matches(name, '^(cuda|cu|hip)StreamBeginCapture')),
ends AS (SELECT start_ns FROM named WHERE regexp_matches(name, '^(cuda|cu|hip)StreamEndCapture')),
captures AS (SELECT b.start_ns, coalesce(e.start_ns, 9223372036854775807) AS end_ns FROM begins b ASOF LEFT JOIN ends e ON b.start_ns < e.start_ns),
counted AS (SELECT host_start_ns AS start_ns, host_end_ns AS end_ns FROM steps WHERE device = $device AND counted),
launches AS (SELECT * FROM named WHERE regexp_matches(name, '^(cuda|cu|hip)\\w*Launch') AND name NOT LIKE '%LaunchHostFunc%'
    AND (NOT exists (FROM counted) OR exists (FROM counted s WHERE named.start_ns >= s.start_ns AND named.start_ns < s.end_ns)))
SELECT count(*) FILTER (l.gpu_ops = 0 AND l.start_ns < c.end_ns), coalesce(sum(greatest(l.gpu_ops, 1)), 0)
FROM launches l ASOF LEFT JOIN captures c ON l.start_ns >= c.start_ns"""
# Captures of several threads are assumed not to overlap: the next begin or end of a capture ends the current one.
_TIME = """WITH named AS (SELECT c.start_ns, n.name FROM runtime_calls c JOIN names n USING (name_id)
    WHERE regexp_matches(n.name, '^(cuda|cu|hip)Stream(Begin|End)Capture')),
counted AS (SELECT host_start_ns AS start_ns, host_end_ns AS end_ns FROM steps WHERE device = $device AND counted),
recorded AS (SELECT min(start_ns) AS start_ns, max(start_ns + dur_ns) AS end_ns FROM runtime_calls WHERE NOT exists (FROM counted)),
windows AS (FROM counted UNION ALL FROM recorded WHERE start_ns IS NOT NULL),
captures AS (SELECT name, start_ns, coalesce(lead(start_ns) OVER (ORDER BY start_ns), (SELECT max(end_ns) FROM windows)) AS end_ns FROM named)
SELECT coalesce((SELECT sum(greatest(least(c.end_ns, w.end_ns) - greatest(c.start_ns, w.start_ns), 0)) FROM captures c, windows w
    WHERE c.name LIKE '%BeginCapture%'), 0), (SELECT coalesce(sum(end_ns - start_ns), 0) FROM windows)"""
HEADLINE = "This trace shows the capture of a CUDA graph, not the run."
ADVICE = "Profile after the capture, when the graph is replayed."


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed check if much of the counted steps' work was captured instead of run."""
    captured, launched = (int(count) for count in recording.rows(_LAUNCHES, {"device": device})[0])
    if captured < MIN_LAUNCHES:
        return
    ns, window_ns = (int(sum_ns) for sum_ns in recording.rows(_TIME, {"device": device})[0])
    share = ns / window_ns if window_ns else 0.0
    sentence = f"{captured:,} of {launched:,} GPU operations were captured into a CUDA graph and did not run, so the GPU is idle by design."
    if captured > CAPTURED_MAJORITY * launched or share > CAPTURED_MAJORITY:
        if captured <= CAPTURED_MAJORITY * launched:
            sentence = f"Capturing a CUDA graph takes {in_words(ns / 1e6)} of {in_words(window_ns / 1e6)} ({percent(share)}). The GPU is idle by design during this time."
        yield FailedCheck("captures_graph", captured, sentence, ADVICE, HEADLINE, "error", EVIDENCE, WITHHELD)
    elif share > MIN_CAPTURE_SHARE:
        sentence = f"Capturing a CUDA graph takes {percent(share)} of the time ({in_words(ns / 1e6)}). The GPU is idle by design during this time."
        yield FailedCheck("captures_graph", captured, sentence, ADVICE, evidence=("gpu_records",), effects=OF_DEVICE_TIME)
