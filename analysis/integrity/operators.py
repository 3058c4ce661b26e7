"""Check that the trace contains all operators that the profiler recorded.

torch.profiler numbers operators and ranges in the order in which they begin on a thread. If the numbers are not consecutive, a
tool removed operators from the file. A time without operators then does not show that Python ran.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.lost_records import OF_GPU_RECORDS
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import percent

# In 71 intact traces of PyTorch 1.9 to 2.11, at least 98.6 % of the numbers are consecutive; in a sampled trace, 38 % are.
MIN_FOLLOWING_SHARE = 0.8
MIN_OPERATORS = 200  # With fewer operators, the jumps between threads and between blocks of numbers matter too much.
MAX_CHECKED_OPERATORS = 50_000  # The check reads the numbers of the first operators only, which is fast and has enough of them.
_FOLLOWING = f"""SELECT count(*), count(*) FILTER (external_id = before + 1) FROM (SELECT external_id, lag(external_id) OVER (ORDER BY external_id) AS before
    FROM (SELECT DISTINCT external_id FROM cpu_ops WHERE external_id > 0 AND cpu_op_id < {MAX_CHECKED_OPERATORS}))"""
HEADLINE = "Operators are missing from the trace. Use the file as torch.profiler wrote it."
ADVICE = "A tool that samples or filters events also removes the events that explain idle time."
EVIDENCE = ("gpu_records", "launch_links", "host_records")
# FLOPs are counted from the remaining operators, so they and the metrics based on them are lower bounds.
EFFECTS: dict[str, Effect] = OF_GPU_RECORDS | dict.fromkeys(("step_time_ms", "best_step_time_ms"), "caution")


def checks(recording: Recording) -> Iterator[FailedCheck]:
    """Yield the failed check if too few of the operators' numbers are consecutive."""
    operators, following = (int(count) for count in recording.rows(_FOLLOWING)[0])
    if operators < MIN_OPERATORS or following >= MIN_FOLLOWING_SHARE * (operators - 1):
        return
    share = percent(following / (operators - 1))
    sentence = f"Only {share} of the operators' numbers are consecutive. In a complete trace, almost all are, so operators are missing."
    yield FailedCheck("operators_missing", operators, sentence, ADVICE, HEADLINE, "error", EVIDENCE, EFFECTS)
