"""Which steps count, and why the others do not.

These steps do not count: steps without complete GPU records, the first step of a cycle, warm-up, steps that the end of the
profile cut off, and steps after the last complete round.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.quantiles import MAD_TO_SIGMA

# Factor on the usual number of GPU operations. Evaluations and checkpoints add more operations than this, varying lengths and
# branches fewer.
MIN_HEAVY_RATIO = 1.2
SLOW_SIGMAS = 3.0  # A step is slow above this many standard deviations, as one of 370 normally distributed steps is.
SLOW_SHARE = 0.10  # A smaller excess is ordinary jitter, even if the median absolute deviation is smaller.
# If a later step has at least this share of the excess, slow steps recur. Recurring waits differ by up to a factor of two.
MIN_RECURRING_SHARE = 0.5
# Smallest number of complete steps that follow a complete step. Only such steps have a certain begin, and one step alone does not
# show the spread.
MIN_COMPLETE_AFTER_COMPLETE = 2

I64 = NDArray[np.int64]


def mark_counted_steps(table: pd.DataFrame, orphans: I64 | int = 0) -> pd.DataFrame:
    """Mark the steps that count, and the reason why the others do not.

    ``orphans`` is, per step, the number of GPU operations whose launch is missing. They count as operations of the step when a
    last step with few operations is recognized as cut off.
    """
    why: list[str | None] = [None] * len(table)
    op_counts = table["gpu_ops"].to_numpy() + orphans
    dur = (table["end"] - table["start"]).to_numpy()
    table, incomplete = _incomplete_steps(table)
    for row in np.flatnonzero(incomplete):
        lost, launched = int(table["lost"].iloc[row]), int(table["gpu_ops"].iloc[row])
        why[row] = f"{lost} of its {lost + launched} launches have no record on the GPU"
    first = ~table["cycle"].duplicated().to_numpy() & ~incomplete
    if (~first & ~incomplete).sum() >= 2:
        for opening in np.flatnonzero(first):
            why[opening] = "first step of a profiling cycle"
    for cycle in table["cycle"].unique():
        rows = [int(k) for k in np.flatnonzero(table["cycle"] == cycle) if why[k] is None]
        earlier_rows = rows[:-1]
        if earlier_rows and op_counts[rows[-1]] < op_counts[earlier_rows].min():
            why[rows[-1]] = "last step, with fewer GPU operations than the others: cut off by the end of the profile"
    rows = [k for k in range(len(table)) if why[k] is None]
    for slow in rows[: _warm_up_length(dur[rows])]:
        why[slow] = "warm-up: slower than the later steps"
    for row in _beyond_whole_rounds(table["gpu_ops"].to_numpy(), np.array([w is None for w in why]), table["cycle"].to_numpy()):
        why[row] = "after the last complete round: some steps do more work, so only complete rounds count"
    counted = np.array([w is None for w in why])
    outlier = np.zeros(len(table), bool)
    if counted.sum() >= 3:
        outlier[counted] = dur[counted] > _slow_limit(dur[counted])
    return table.assign(counted=counted, excluded_because=why, outlier=outlier)


def _incomplete_steps(table: pd.DataFrame) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    """Return the table, and which steps lack GPU records (no step, if too few steps are complete).

    A step begins where the previous one ends. If the previous step lacks records, this time may be wrong. Therefore the step then
    begins a new cycle, like a step after a pause of the profiler.
    """
    incomplete = table["lost"].to_numpy() > 0 if "lost" in table else np.zeros(len(table), bool)
    bordered = ~incomplete[1:] & ~incomplete[:-1]
    if not incomplete.any() or bordered.sum() < MIN_COMPLETE_AFTER_COMPLETE:
        return table, np.zeros(len(table), bool)
    cycle = table["cycle"].to_numpy()
    begins = np.concatenate(([0], (np.diff(cycle) != 0) | (np.diff(incomplete.astype(int)) != 0)))
    return table.assign(cycle=np.cumsum(begins)), incomplete


def _beyond_whole_rounds(gpu_ops: I64, counted: NDArray[np.bool_], cycle: I64) -> I64:
    """Return the counted steps after the last complete round.

    A loop has rounds if every n-th step launches more, for example for an evaluation or a checkpoint. An incomplete round would
    give such steps the wrong weight in the mean. The result is empty if no work recurs evenly, or if no complete round is
    counted.
    """
    heavy = np.flatnonzero(gpu_ops >= MIN_HEAVY_RATIO * np.median(gpu_ops)) if len(gpu_ops) else gpu_ops
    rows = np.flatnonzero(counted)
    distances = np.unique(np.diff(heavy))
    is_regular = len(distances) == 1 and len(np.unique(cycle)) == 1 and len(rows) and (np.diff(rows) == 1).all()
    if not is_regular or len(rows) < distances[0]:
        return rows[:0]
    return rows[len(rows) - len(rows) % int(distances[0]) :]


def _slow_limit(durations: I64) -> float:
    middle = float(np.median(durations))
    spread = float(np.median(np.abs(durations - middle)))
    return middle + max(SLOW_SIGMAS * MAD_TO_SIGMA * spread, SLOW_SHARE * middle)


def _warm_up_length(durations: I64) -> int:
    """Return the number of leading slow steps (warm-up).

    It is the longest decreasing sequence of slow steps that does not recur later. Slow steps that recur or follow faster
    steps belong to the run. Examples are a checkpoint, and waits for a loader whose batches come in bursts.
    """
    count = len(durations)
    lengths = np.arange(1, min((count + 1) // 2, count - 2) + 1)
    if not len(lengths):
        return 0
    fastest = np.minimum.accumulate(durations)[lengths - 1]  # By number of leading steps: the shortest of them.
    slowest = np.maximum.accumulate(durations[::-1])[::-1][lengths]  # By number of leading steps: the longest remaining step.
    # If all leading steps are slower than the remaining ones, the remaining ones come first in sorted order. Their median is
    # the middle of that part.
    ordered, remaining = np.sort(durations), count - lengths
    remaining_median = (ordered[(remaining - 1) // 2] + ordered[remaining // 2]) / 2
    is_warm_up = (fastest > slowest) & (slowest - remaining_median < MIN_RECURRING_SHARE * (fastest - remaining_median))
    # There are few candidates, because the excess halves from one candidate to the next.
    for at in np.flatnonzero(is_warm_up)[::-1].tolist():
        limit = _slow_limit(durations[lengths[at] :])
        if fastest[at] > limit and (np.diff(durations[: lengths[at]]) <= limit - remaining_median[at]).all():
            return int(lengths[at])
    return 0
