"""Which part of a telemetry recording shows the running loop, and means over it: holes count for nothing, time is the weight.

A recording begins before the loop and ends after it, may hold pauses (evaluation, a checkpoint) and a start that differs from what
follows. The steady part is the longest stretch without a pause, less its first second, its last one and a start of another level.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

MIN_SAMPLES = 5  # fewer are no part of anything
ACTIVE_POINTS, ACTIVE_SHARE = 1.0, 0.1  # percent, and of the level the GPU reaches: above both it works
PAUSE_NS = 1_500_000_000  # an idle time shorter than this belongs to the loop
RHYTHM, WORK_FACTOR = 6, 3  # with this many waits, and work between them of less than this many times their length, …
PAUSE_FACTOR = 4  # … waits are the loop's own unless they are this many times longer than usual
EDGE_NS = 1_000_000_000  # NVML's longest window: samples nearer to a start or end describe both sides of it
EDGE_SHARE = 0.1  # but never more of the stretch than this on either side
BLOCKS = 12  # parts in which a start of another level is looked for
START_DIFFERS = 0.2  # of the median level of the parts
HOLE_PERIODS = 3  # as in sample_gaps
LAG_NS = 500_000_000  # NVML utilization still shows the start for this long after it
PREPARES_NS = 1_000_000_000  # the profiler's warm-up steps and the window of the sample that shows them
WRITES_WITHIN_NS = 1_000_000_000  # after the last event the profiler stops the loop to process and write
LONGEST_START = 0.34  # of the stretch that may be called its start


@dataclass(frozen=True)
class Steady:
    """The steady part in absolute nanoseconds, or None with the reason; ``pauses`` are long idle times between active stretches,
    ``warm_up_ns`` the length of a start of another level that was left out, ``runs_ns`` the whole stretch that the loop ran."""

    start_ns: int | None
    end_ns: int | None
    why_none: str | None = None
    pauses: tuple[tuple[int, int], ...] = ()
    warm_up_ns: int = 0
    runs_ns: tuple[int, int] | None = None

    def mask(self, time_ns: I64) -> NDArray[np.bool_]:
        """Tell which samples lie in the steady part; none where there is none."""
        if self.start_ns is None or self.end_ns is None:
            return np.zeros(len(time_ns), bool)
        return (time_ns > self.start_ns) & (time_ns <= self.end_ns)


def find_steady(time_ns: I64, busy: F64) -> Steady:
    """Find the steady part of one device from its busiest-resolved activity in percent (GPM graphics, else NVML utilization)."""
    known = np.isfinite(busy)
    times, values = time_ns[known], busy[known]
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    if len(times) < MIN_SAMPLES:
        return Steady(None, None, f"{len(times)} samples are too few")
    threshold = max(ACTIVE_POINTS, ACTIVE_SHARE * float(np.percentile(values, 98)))
    active = np.flatnonzero(values > threshold)
    if len(active) < 2:
        return Steady(None, None, "the GPU never worked while it was sampled")
    stretches, pauses = _stretches(times, active)
    a, b = max(stretches, key=lambda s: int(times[s[1]] - times[s[0]]))
    start, end = runs = int(times[max(a - 1, 0)]), int(times[b])
    edge = min(EDGE_NS, int(EDGE_SHARE * (end - start)))
    start, end = start + edge, end - edge
    warm_up = _start_of_another_level(times, values, start, end)
    inside = int(((times > start + warm_up) & (times <= end)).sum())
    if inside < MIN_SAMPLES:
        return Steady(None, None, "the GPU worked too shortly while it was sampled", pauses)
    return Steady(start + warm_up, end, None, pauses, warm_up, runs)


def profile_shadow(time_ns: I64, busy: F64, profile: tuple[int, int]) -> tuple[int, int]:
    """Return the time that a profile spoils: from its preparation until the GPU works again after the trace was written.

    ``profile`` is the (first, last) time of the trace's events. Where the GPU does not work again, the shadow has no end in the telemetry.
    """
    start, end = profile
    known = np.isfinite(busy)
    times, values = time_ns[known], busy[known]
    if not len(times):
        return start, end
    threshold = max(ACTIVE_POINTS, ACTIVE_SHARE * float(np.percentile(values, 98)))
    later = np.flatnonzero((times > end) & (values <= threshold))
    # Writing begins within a second of the last event or not at all: the first idle samples there are its, with what follows them.
    if len(later) and times[later[0]] <= end + WRITES_WITHIN_NS:
        again = np.flatnonzero((times > times[later[0]]) & (values > threshold))
        end = int(times[again[0]]) if len(again) else int(times[-1])
    return start - PREPARES_NS, end + LAG_NS


def weighted_mean(time_ns: I64, value: F64, part: Steady, exclude: Sequence[tuple[int, int]] = ()) -> float | None:
    """Return the mean over the steady part, each sample weighing the time since the one before; None without samples.

    Holes and the intervals of ``exclude`` (a profile's window) weigh nothing, so that a sample after a hole weighs one period.
    """
    known = np.isfinite(value)
    times, values = time_ns[known], value[known]
    times, first = np.unique(times, return_index=True)
    values = values[first]
    if len(times) == 0:
        return None
    weight = weights_ns(times)
    keep = part.mask(times)
    for start, end in exclude:
        keep &= (times <= start) | (times - weight >= end)
    total = float(weight[keep].sum())
    return float((values[keep] * weight[keep]).sum() / total) if total > 0 else None


def weights_ns(times: I64) -> I64:
    """Return the time each sample describes: since the one before, or one usual period after a hole and at the start."""
    if len(times) < 2:
        return np.ones(len(times), np.int64)
    steps = np.diff(times)
    usual = int(np.median(steps))
    return np.concatenate([[usual], np.where(steps > HOLE_PERIODS * usual, usual, steps)]).astype(np.int64)


def _stretches(times: I64, active: I64) -> tuple[list[tuple[int, int]], tuple[tuple[int, int], ...]]:
    """Cut the active samples where the GPU paused; return (first, last) indices and the pauses' times."""
    idle = np.diff(times[active])
    step = float(np.median(np.diff(times)))
    waits = np.flatnonzero(idle > 1.5 * step)
    limit = max(float(PAUSE_NS), HOLE_PERIODS * step)
    if len(waits) >= RHYTHM:
        usual = float(np.median(idle[waits]))
        work = float(np.median(times[active[waits[1:]]] - times[active[waits[:-1] + 1]]))
        if work < WORK_FACTOR * usual:  # it works and waits by turns: the waits are the loop's
            limit = max(limit, PAUSE_FACTOR * usual)
    cuts = np.flatnonzero(idle > limit)
    bounds = [0, *(cuts + 1).tolist(), len(active)]
    stretches = [(int(active[a]), int(active[b - 1])) for a, b in itertools.pairwise(bounds)]
    return stretches, tuple((int(times[active[c]]), int(times[active[c + 1]])) for c in cuts)


def _start_of_another_level(times: I64, values: F64, start: int, end: int) -> int:
    """Return how long the beginning runs at another level than the rest, in whole parts of the stretch; 0 where it does not."""
    edges = [start + (end - start) * i // BLOCKS for i in range(BLOCKS + 1)]
    levels = []
    for a, b in pairwise(edges):
        part = values[(times > a) & (times <= b)]
        levels.append(float(part.mean()) if len(part) else np.nan)
    usual = float(np.nanmedian(levels))
    scatter = 3 * 1.4826 * float(np.nanmedian(np.abs(np.array(levels) - usual)))
    allowed = max(START_DIFFERS * usual, scatter)
    late = next((i for i, level in enumerate(levels) if not abs(level - usual) > allowed), 0)
    if not 0 < late <= LONGEST_START * BLOCKS:
        return 0
    return edges[late] - start + min(LAG_NS, (end - start) // (2 * BLOCKS))
