"""Check whether the trace shows a capture into a CUDA graph instead of the run.

What is launched during a capture does not run, so the GPU is idle by design. Serving engines profile this phase separately.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE
from sawtooth.analysis.integrity.times import WITHHELD
from sawtooth.analysis.store.library import Recording

# More of the launches are captured than run. A loop that captures now and then runs most of what it launches.
MOSTLY = 0.5
FEWEST = 20  # launches during the capture: a graph of fewer saves nothing, so nobody captures it for its own sake
# The host's time of the counted steps, or of the whole recording if none counts. Any thread launches, because autograd
# launches from its own. A capture without an end lasts until the recording ends.
_LAUNCHES = """WITH named AS (SELECT c.start_ns, c.gpu_ops, n.name FROM runtime_calls c JOIN names n USING (name_id)),
begins AS (SELECT start_ns FROM named WHERE regexp_matches(name, '^(cuda|cu|hip)StreamBeginCapture')),
ends AS (SELECT start_ns FROM named WHERE regexp_matches(name, '^(cuda|cu|hip)StreamEndCapture')),
captures AS (SELECT b.start_ns, coalesce(e.start_ns, 9223372036854775807) AS end_ns FROM begins b ASOF LEFT JOIN ends e ON b.start_ns < e.start_ns),
counted AS (SELECT host_start_ns AS start_ns, host_end_ns AS end_ns FROM steps WHERE device = $device AND counted),
launches AS (SELECT * FROM named WHERE regexp_matches(name, '^(cuda|cu|hip)\\w*Launch') AND name NOT LIKE '%LaunchHostFunc%'
    AND (NOT exists (FROM counted) OR exists (FROM counted s WHERE named.start_ns >= s.start_ns AND named.start_ns < s.end_ns)))
SELECT count(*) FILTER (l.gpu_ops = 0 AND l.start_ns < c.end_ns), coalesce(sum(greatest(l.gpu_ops, 1)), 0)
FROM launches l ASOF LEFT JOIN captures c ON l.start_ns >= c.start_ns"""
ADVICE = "Profile after the capture, when the graph is replayed."


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed check if most launches of the counted steps were captured and not run."""
    captured, launched = (int(count) for count in recording.rows(_LAUNCHES, {"device": device})[0])
    if captured >= FEWEST and captured > MOSTLY * launched:
        sentence = f"{captured:,} of {launched:,} GPU operations were captured into a CUDA graph and did not run: the GPU is idle by design."
        headline = "This trace shows the capture of a CUDA graph, not the run."
        yield FailedCheck("captures_graph", captured, sentence, ADVICE, headline, "error", EVIDENCE, WITHHELD)
