"""Check that the trace holds all operators that the profiler recorded.

torch.profiler numbers operators and ranges in the order in which they begin on a thread. Numbers that do not follow one another
show that a tool removed operators from the file. Then a stretch without operators is no evidence of Python.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.lost_records import OF_GPU_RECORDS
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import percent

# In 71 intact traces of PyTorch 1.9 to 2.11, at least 98.6 % of the numbers follow one another; in a sampled one 38 % do.
FOLLOW = 0.8
FEWEST = 200  # operators: with fewer, the ends of threads and of blocks of numbers count too much
LOOKED_AT = 50_000
_FOLLOWING = f"""SELECT count(*), count(*) FILTER (external_id = before + 1) FROM (SELECT external_id, lag(external_id) OVER (ORDER BY external_id) AS before
    FROM (SELECT DISTINCT external_id FROM cpu_ops WHERE external_id > 0 AND cpu_op_id < {LOOKED_AT}))"""
HEADLINE = "Operators are missing from the trace: use the file as torch.profiler wrote it."
ADVICE = "A tool that samples or filters events also removes what explains idle time."
EVIDENCE = ("gpu_records", "launch_links", "host_records")
# FLOPs are counted from the operators that are left, so all that is computed from them is a lower bound.
EFFECTS: dict[str, Effect] = OF_GPU_RECORDS | dict.fromkeys(("step_time_ms", "best_step_time_ms"), "caution")


def checks(recording: Recording) -> Iterator[FailedCheck]:
    """Yield the failed check of the operators' numbers; nothing if they follow one another."""
    operators, following = (int(count) for count in recording.rows(_FOLLOWING)[0])
    if operators < FEWEST or following >= FOLLOW * (operators - 1):
        return
    share = percent(following / (operators - 1))
    sentence = f"Only {share} of the operators' numbers are consecutive. In a complete trace all are, so operators are missing."
    yield FailedCheck("operators_missing", operators, sentence, ADVICE, HEADLINE, "error", EVIDENCE, EFFECTS)
