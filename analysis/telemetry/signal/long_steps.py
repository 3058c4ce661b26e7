"""Rare long steps in the marks of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from sawtooth.analysis.metrics.pauses import MIN_PAUSES
from sawtooth.analysis.metrics.step_time_evidence import LongSteps
from sawtooth.ingest.loop.step_parts import LONG_STEP_RATIO, StepSpan

MAX_LONG_SHARE = 0.1  # A profile of a few steps is likely to contain steps that are more frequent.
MIN_LONGER_SHARE = 0.5  # Of the long steps' extra time. If the loop takes less time in all, its other steps are shorter.


def rare_long_steps(spans: Sequence[StepSpan], ends_ns: Mapping[int, int]) -> LongSteps | None:
    """Return the rare long training steps among the counted ``spans``; None without such steps.

    ``ends_ns`` are the times of the marks, by step. Waits for batches do not count, because the rules on loaders report them. A host
    that waits for launched work fills the queue again afterwards, so its next steps are shorter. Such waits are not long steps.
    """
    steps = [span for span in spans if span.phase == "train"]
    if not steps:
        return None
    usual_ns = median(span.ns for span in steps)
    long = [span for span in steps if span.work_ns > LONG_STEP_RATIO * usual_ns]
    if len(long) < MIN_PAUSES or len(long) > MAX_LONG_SHARE * len(steps):
        return None
    extra_ns = sum(span.ns - usual_ns for span in long)
    if sum(span.ns - usual_ns for span in steps) < MIN_LONGER_SHARE * extra_ns:
        return None
    return LongSteps(
        tuple(span.step for span in long),
        tuple((span.ns - usual_ns) / 1e6 for span in long),
        tuple((ends_ns[span.step] - span.ns, ends_ns[span.step]) for span in long),
        len(spans),
    )
