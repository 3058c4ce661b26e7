"""Phases of a telemetry recording, from its change points.

Kinds of phases are the times outside the loop, warm-up, pauses, checkpoints, changes of level and throttling.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import where_true
from sawtooth.analysis.telemetry.signal.steady import SteadyPart, weights_ns
from sawtooth.ingest.quantities.throttling import BY_LABEL, HOLDING, ReasonKind

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

BLOCK_NS = 1_000_000_000  # Levels are compared over blocks at least as long as NVML's longest window.
BLOCK_PERIODS = 3  # And as this many periods of a sawtooth, because a sawtooth is not a change of level.
MIN_BLOCKS = 3  # A level must last for this many blocks.
MAX_BLOCKS = 400  # Longer recordings get longer blocks.
MIN_SHIFT = 0.15  # Smaller changes, as a share of the usual level, are not shown.
# Factor of variance × ln n, slightly more than in the Bayesian information criterion for a mean (2 parameters).
PENALTY = 3.0
MAX_SCATTER = 0.25  # Largest relative scatter of the intervals between pauses that count as regular.


@dataclass(frozen=True)
class Phase:
    """A part of the recording.

    ``kind`` is one of not_running, warm_up, steady, pause, checkpoint, level.
    """

    kind: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class ThrottleBand:
    """A time in which the driver reduced clocks, with the reason and the mean SM clock in MHz.

    The reason is a label of the registry.
    """

    reason: str
    start_ns: int
    end_ns: int
    clock_sm_mhz: float | None

    @property
    def kind(self) -> ReasonKind:
        """The kind of reason, which shows who can act."""
        return BY_LABEL[self.reason].kind


def phases(time_ns: I64, busy: F64, steady: SteadyPart, period_s: float | None = None) -> list[Phase]:
    """Return the phases in order.

    ``busy`` is the same signal as for ``find_steady``; ``period_s`` is the period of its sawtooth, if there is one.
    """
    finite = np.isfinite(busy)
    times, values = time_ns[finite], busy[finite]
    if len(times) < 2 or steady.start_ns is None or steady.end_ns is None:
        return [Phase("not_running", int(times[0]), int(times[-1]))] if len(times) else []
    assert steady.runs_ns is not None
    (begins, ends), first, last = steady.runs_ns, int(times[0]), int(times[-1])
    spans = [("checkpoint" if _is_recurring(steady.pauses) else "pause", start, end) for start, end in steady.pauses]
    if begins > first and not any(start < begins for _, start, _ in spans):
        spans.append(("not_running", first, begins))
    if ends < last and not any(end > ends for _, _, end in spans):
        spans.append(("not_running", ends, last))
    if steady.warm_up_ns:
        spans.append(("warm_up", begins, steady.start_ns))
    parts = [Phase(kind, start, end) for kind, start, end in spans]
    parts += _levels(times, values, steady.start_ns if steady.warm_up_ns else begins, ends, period_s)
    return sorted(parts, key=lambda p: p.start_ns)


def throttle_bands(time_ns: I64, mask: F64, clock_sm_mhz: F64) -> list[ThrottleBand]:
    """Return the times of reduced clocks, one band per reason and time, in order."""
    finite = np.isfinite(mask)
    times, bits = time_ns[finite], mask[finite].astype(np.int64)
    if len(times) == 0:
        return []
    starts = times - weights_ns(times)
    bands = []
    for reason in HOLDING:
        on = (bits & reason.bit) != 0
        for a, b in zip(*where_true(on), strict=True):
            start, end = int(starts[a]), int(times[b - 1])
            inside = (time_ns > start) & (time_ns <= end) & np.isfinite(clock_sm_mhz)
            clock = float(clock_sm_mhz[inside].mean()) if inside.any() else None
            bands.append(ThrottleBand(reason.label, start, end, clock))
    return sorted(bands, key=lambda band: (band.start_ns, band.reason))


def _is_recurring(pauses: tuple[tuple[int, int], ...]) -> bool:
    """Return whether the pauses recur at regular intervals, like checkpoints and evaluations."""
    if len(pauses) < 3:
        return False
    spacing = np.diff([start for start, _ in pauses])
    return float(spacing.std() / spacing.mean()) <= MAX_SCATTER


def _levels(times: I64, values: F64, start: int, end: int, period_s: float | None) -> list[Phase]:
    """Cut the steady part at changes of its level (binary segmentation of block means)."""
    block = max(BLOCK_NS, int(BLOCK_PERIODS * (period_s or 0) * 1e9), (end - start) // MAX_BLOCKS)
    count = int(max(1, (end - start) // block))
    edges = [start + (end - start) * i // count for i in range(count + 1)]
    level = np.array([_level(times, values, a, b) or 0.0 for a, b in pairwise(edges)])
    # The standard deviation, from the median difference.
    noise = float(np.median(np.abs(np.diff(level)))) / 0.954 if len(level) > 1 else 0.0
    least_gain = PENALTY * noise**2 * np.log(max(len(level), 2))
    cuts = sorted(_cut(level, 0, len(level), least_gain, MIN_SHIFT * float(np.median(level))))
    bounds = [0, *cuts, len(level)]
    kind = "steady" if len(bounds) == 2 else "level"
    return [Phase(kind, edges[a], edges[b]) for a, b in itertools.pairwise(bounds)]


def _cut(level: F64, a: int, b: int, least_gain: float, shift: float) -> list[int]:
    part = level[a:b]
    n = len(part)
    if n < 2 * MIN_BLOCKS:
        return []
    sums = np.cumsum(part)[:-1]
    count_left = np.arange(1, n)
    gap = np.abs(sums / count_left - (part.sum() - sums) / (n - count_left))
    gain = gap**2 * count_left * (n - count_left) / n
    gain[: MIN_BLOCKS - 1] = gain[n - MIN_BLOCKS :] = -1.0
    split = int(gain.argmax())
    if gain[split] <= least_gain or gap[split] < shift:
        return []
    cut = a + split + 1
    return [*_cut(level, a, cut, least_gain, shift), cut, *_cut(level, cut, b, least_gain, shift)]


def _level(times: I64, values: F64, start: int, end: int) -> float | None:
    inside = (times > start) & (times <= end)
    if not inside.any():
        return None
    weight = weights_ns(times)[inside]
    return float((values[inside] * weight).sum() / weight.sum())
