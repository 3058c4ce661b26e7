"""Segmentation of a telemetry recording into idle time, start-up, training, pauses and the profile.

Every use of a steady part takes it from here. A recording begins before the loop and ends after it. The loop may also stop in
between: idle times cut the activity into blocks. Small blocks before and after the loop are a process that starts or ends. At
least three blocks at regular times form a rhythm, such as a checkpoint every ten steps. The waits of a rhythm belong to the
loop, and its full periods count. Without a rhythm, the longest block counts, with the other blocks of its level. Parts of
another level (start-up, evaluation) are cut out if the level is below half or above twice the rest, in at most two places.
Smaller differences stay, because hosts drift; they make the interval of the mean wider.
If the training process marked its steps, activity before the first and after the last mark is not the loop's, however long it
is. A search for kernels can keep a GPU busy longer than a short training.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.intervals import where_true
from sawtooth.ingest.quantities.registry import GAP_PERIODS

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
Span = tuple[int, int]

MIN_SAMPLES = 5  # Fewer samples do not form a part.
ACTIVE_POINTS, ACTIVE_SHARE = 1.0, 0.1  # Percent, and share of the level that the GPU reaches: above both it works.
PAUSE_NS = 700_000_000  # A shorter idle time belongs to the loop: NVML's own windows last up to 0.2 s and lag as much.
# A loop works and waits in turn if it has MANY_WAITS waits, and the work between them is shorter than WORK_FACTOR times a wait. Then
# only waits that are PAUSE_FACTOR times longer than usual are pauses.
MANY_WAITS, WORK_FACTOR, PAUSE_FACTOR = 6, 3, 4
BLOCK_SHARE = 0.2  # Share of the largest block's activity: smaller blocks are not the loop.
RHYTHM_BLOCKS = 3  # A rhythm has at least this many blocks.
MAX_BLOCK_SCATTER = 0.4  # The distances between the blocks of a rhythm have at most this relative scatter.
MANY_BLOCKS = 6  # From this number of blocks on, their distances need not be regular.
# A rhythm's first or last period was cut off if its activity is below this share of the usual period's, or above the inverse share.
END_PERIOD = 0.5
SAME_LEVEL = 0.2  # Blocks whose levels differ by less are combined.
EDGE_NS = 1_000_000_000  # NVML's longest window. Samples closer to a start or end describe both sides of it.
EDGE_SHARE = 0.1  # At most this share of the part is left out at each end.
CHUNK_NS, CHUNK_SAMPLES, MIN_CHUNKS = 500_000_000, 5, 6  # Parts whose levels are compared.
MAX_CHUNKS = 1_000_000  # Six days of such parts. A clock that jumps would otherwise need gigabytes.
ODD_LEVEL = 2.0  # A level this factor above or below the usual one is start-up or evaluation, never the drift of a host.
ODD_PLACES, ODD_SHARE = 2, 0.4  # With more such places, or a larger share of the time, the level is simply uneven.
LAG_NS = 500_000_000  # For this time after the GPU resumes, NVML's utilization still contains the time before.
# time before the profile: the profiler's warm-up steps, and the window of the sample that shows them
PREPARES_NS = 1_000_000_000
MAX_WRITE_START_NS = 1_000_000_000  # Within this time after the last event, the profiler stops the loop to process and write.
ENOUGH_NS, ENOUGH_SAMPLES = 2_000_000_000, 10  # With this much training before the profile, samples after it are not needed.


@dataclass(frozen=True)
class SteadyPart:
    """The training part in absolute nanoseconds, or None with the reason.

    ``pauses`` are long idle times between active parts. ``warm_up_ns`` is the length of a start with another level that was
    left out. ``runs_ns`` is the full time of the loop. ``left_out`` are times inside the part without training (pauses that
    form no rhythm, the profile); ``doubtful`` are those of them that may be training (a part with another level). ``periods``
    are the ends of a rhythm's full periods, empty without a rhythm.
    """

    start_ns: int | None
    end_ns: int | None
    why_none: str | None = None
    pauses: tuple[Span, ...] = ()
    warm_up_ns: int = 0
    runs_ns: Span | None = None
    left_out: tuple[Span, ...] = ()
    doubtful: tuple[Span, ...] = ()
    periods: tuple[int, ...] = ()

    def mask(self, time_ns: I64, *, doubtful: bool = False) -> NDArray[np.bool_]:
        """Return which samples are in the training part; none if there is no such part.

        With ``doubtful``, times that may be training are included.
        """
        if self.start_ns is None or self.end_ns is None:
            return np.zeros(len(time_ns), bool)
        inside = (time_ns > self.start_ns) & (time_ns <= self.end_ns)
        for start, end in self.left_out:
            if not (doubtful and (start, end) in self.doubtful):
                inside &= (time_ns <= start) | (time_ns > end)
        return inside


def find_steady(time_ns: I64, busy: F64, shadows: Sequence[Span] = (), marked: Span | None = None) -> SteadyPart:
    """Segment one device's samples by its best activity signal in percent (GPM graphics, else NVML).

    ``shadows`` are the times that profiles affect (``profile_shadow``). ``marked`` is the time from the first to the last
    marked step. Activity outside it is ignored, unless the GPU hardly worked inside.
    """
    times, values = recorded_samples(time_ns, busy)
    if len(times) < MIN_SAMPLES:
        return SteadyPart(None, None, f"{len(times)} samples are too few")
    threshold = max(ACTIVE_POINTS, ACTIVE_SHARE * float(np.percentile(values, 98)))
    if (values > threshold).sum() < 2:
        never_worked = "the GPU never worked while it was sampled"
        return SteadyPart(None, None, f"fewer than two samples are above {threshold:.3g} %" if values.any() else never_worked)
    clear = np.ones(len(times), bool)
    for start, end in shadows:
        clear &= (times <= start) | (times > end)
    active = np.flatnonzero((values > threshold) & clear)
    if len(active) < 2:
        return SteadyPart(None, None, "the GPU worked under the profiler only while it was sampled")
    if marked is not None:
        inside = active[(times[active] > marked[0]) & (times[active] <= marked[1])]
        active = inside if len(inside) >= MIN_SAMPLES else active
    blocks, pauses = _blocks(times, active, shadows)
    groups = _separate_blocks(times, blocks, shadows)
    tries = [_training_part(times, values, group) for group in groups]
    long_enough = (t for t in tries if _length(t) >= ENOUGH_NS and t.mask(times).sum() >= ENOUGH_SAMPLES)
    part = next(long_enough, None) or max(tries, key=lambda t: int(t.mask(times).sum()))
    if int(part.mask(times).sum()) < MIN_SAMPLES:
        return SteadyPart(None, None, "the GPU worked too briefly while it was sampled", pauses)
    return replace(part, pauses=pauses if not _is_sawtooth(part, pauses) else ())


def profile_shadow(time_ns: I64, busy: F64, profile: tuple[int, int]) -> tuple[int, int]:
    """Return the time that a profile affects.

    It lasts from the profile's preparation until the GPU works again after the trace was written. ``profile`` is the (first,
    last) time of the trace's events. If the GPU does not work again, it lasts to the end of the telemetry.
    """
    start, end = profile
    finite = np.isfinite(busy)
    times, values = time_ns[finite], busy[finite]
    if not len(times):
        return start, end
    threshold = max(ACTIVE_POINTS, ACTIVE_SHARE * float(np.percentile(values, 98)))
    later = np.flatnonzero((times > end) & (values <= threshold))
    # If the profiler writes a trace, it begins within a second of the last event. So the first idle samples there belong to
    # the writing.
    if len(later) and times[later[0]] <= end + MAX_WRITE_START_NS:
        resumed = np.flatnonzero((times > times[later[0]]) & (values > threshold))
        end = int(times[resumed[0]]) if len(resumed) else int(times[-1])
    return start - PREPARES_NS, end + LAG_NS


def weights_ns(times: I64) -> I64:
    """Return the time that each sample describes: since the previous sample, or one usual period.

    The usual period applies at the start and after a telemetry gap. Of several samples with the same time, the first has all of it.
    """
    steps = np.diff(times)
    if not steps.any():
        return np.ones(len(times), np.int64)
    median_step = int(np.median(steps[steps > 0]))
    return np.concatenate([[median_step], np.where(steps > GAP_PERIODS * median_step, median_step, steps)]).astype(np.int64)


def recorded_samples(time_ns: I64, value: F64) -> tuple[I64, F64]:
    """Return the samples that have a value, in order, with one per time."""
    finite = np.isfinite(value)
    times, first = np.unique(time_ns[finite], return_index=True)
    return times, value[finite][first]


def _length(part: SteadyPart) -> int:
    return part.end_ns - part.start_ns if part.start_ns is not None and part.end_ns is not None else 0


def _blocks(times: I64, active: I64, shadows: Sequence[Span]) -> tuple[list[Span], tuple[Span, ...]]:
    """Cut the active samples at pauses and profiles; return (first, last) indices and the pauses' times."""
    step = float(np.median(np.diff(times)))
    idle = np.diff(times[active])
    profiled = np.array(
        [any(b > start and a < end for start, end in shadows) for a, b in itertools.pairwise(times[active])], bool
    )
    waits = np.flatnonzero((idle > 1.5 * step) & ~profiled)
    limit = max(float(PAUSE_NS), GAP_PERIODS * step)
    if len(waits) >= MANY_WAITS:
        median_idle = float(np.median(idle[waits]))
        work = float(np.median(times[active[waits[1:]]] - times[active[waits[:-1] + 1]]))
        if work < WORK_FACTOR * median_idle:  # The GPU works and waits in turn, so the waits belong to the loop.
            limit = max(limit, PAUSE_FACTOR * median_idle)
    cuts = np.flatnonzero((idle > limit) | profiled)
    bounds = [0, *(cuts + 1).tolist(), len(active)]
    blocks = [(int(active[a]), int(active[b - 1])) for a, b in itertools.pairwise(bounds)]
    return blocks, tuple((int(times[active[c]]), int(times[active[c + 1]])) for c in cuts if not profiled[c])


def _separate_blocks(times: I64, blocks: list[Span], shadows: Sequence[Span]) -> list[list[Span]]:
    """Group the blocks that no profile separates.

    After a profile, its hooks in the driver's calls may stay active and slow the host.
    """
    groups = [[blocks[0]]]
    for previous, following in itertools.pairwise(blocks):
        if any(times[following[0]] > start and times[previous[1]] < end for start, end in shadows):
            groups.append([])
        groups[-1].append(following)
    return groups


def _training_part(times: I64, values: F64, blocks: list[Span]) -> SteadyPart:
    weight = weights_ns(times)
    work = [float((values[a : b + 1] * weight[a : b + 1]).sum()) for a, b in blocks]
    training_blocks = [block for block, amount in zip(blocks, work, strict=True) if amount >= BLOCK_SHARE * max(work)]
    starts = np.array([times[max(a - 1, 0)] for a, _ in training_blocks])
    if len(training_blocks) >= RHYTHM_BLOCKS and (periods := _whole_periods(times, values * weight, starts)):
        return SteadyPart(
            periods[0], periods[-1], None, runs_ns=(int(starts[0]), int(times[training_blocks[-1][1]])), periods=periods
        )
    return _by_level(times, values, training_blocks)


def _whole_periods(times: I64, work: F64, starts: I64) -> tuple[int, ...]:
    """Return the ends of a rhythm's full periods; empty without a rhythm.

    A first or last period that was cut off is left out.
    """
    lengths = np.diff(starts)
    period_of = np.searchsorted(starts, times, side="left") - 1
    inside = (period_of >= 0) & (period_of < len(lengths))
    work_per_period = np.bincount(period_of[inside], work[inside], minlength=len(lengths))
    first, last = 0, len(lengths)
    median_work = float(np.median(work_per_period))
    partial = [not END_PERIOD * median_work <= amount <= median_work / END_PERIOD for amount in work_per_period]
    if partial[0] and last > 2:
        first = 1
    if partial[-1] and last - first > 2:
        last -= 1
    regular = lengths[first:last]
    even = len(starts) >= MANY_BLOCKS or float(regular.std() / regular.mean()) <= MAX_BLOCK_SCATTER
    return tuple(int(t) for t in starts[first : last + 1]) if even else ()


def _by_level(times: I64, values: F64, blocks: list[Span]) -> SteadyPart:
    """Return the longest block with others of its level, without edges and parts of another level."""
    levels = [float(values[a : b + 1].mean()) for a, b in blocks]
    longest = max(range(len(blocks)), key=lambda i: int(times[blocks[i][1]] - times[blocks[i][0]]))
    same_level = [i for i, level in enumerate(levels) if abs(level - levels[longest]) <= SAME_LEVEL * levels[longest]]
    first, last = blocks[same_level[0]], blocks[same_level[-1]]
    start, end = runs = int(times[max(first[0] - 1, 0)]), int(times[last[1]])
    edge = min(EDGE_NS, int(EDGE_SHARE * (end - start)))
    start, end = start + edge, end - edge
    left_out = []
    for i in range(same_level[0], same_level[-1]):
        block, next_block = blocks[i], blocks[i + 1]
        left_out.append((int(times[block[1]]) - (0 if i in same_level else edge), int(times[next_block[0]]) + edge))
        if i not in same_level:
            left_out.append((int(times[max(block[0] - 1, 0)]), int(times[block[1]])))
    part = SteadyPart(start, end, None, runs_ns=runs, left_out=tuple(left_out))
    return _without_odd_levels(times, values, part)


def _without_odd_levels(times: I64, values: F64, part: SteadyPart) -> SteadyPart:
    """Cut start-up and evaluation: one or two parts with a level below half or above twice the usual one."""
    assert part.start_ns is not None and part.end_ns is not None
    inside = np.flatnonzero(part.mask(times))
    if len(inside) < MIN_CHUNKS * CHUNK_SAMPLES // 2:
        return part
    span = part.end_ns - part.start_ns
    step = float(np.median(np.diff(times)))
    chunk = max(CHUNK_NS, CHUNK_SAMPLES * step)
    count = min(int(span // chunk), MAX_CHUNKS)
    if count < MIN_CHUNKS:
        return part
    part_of = np.minimum(((times[inside] - part.start_ns - 1) / span * count).astype(np.int64), count - 1)
    sums, number = np.bincount(part_of, values[inside], minlength=count), np.bincount(part_of, minlength=count)
    level = np.where(number > 0, sums / np.maximum(number, 1), np.nan)
    median_level = float(np.nanmedian(level))
    unusual = (level < median_level / ODD_LEVEL) | (level > median_level * ODD_LEVEL)
    places = list(zip(*(ends.tolist() for ends in where_true(unusual)), strict=True))
    if not places or len(places) > ODD_PLACES or unusual.sum() > ODD_SHARE * count:
        return part
    start, end, left_out, doubtful = part.start_ns, part.end_ns, list(part.left_out), []
    at = [part.start_ns + span * i // count for i in range(count + 1)]
    for a, b in places:  # Take one more chunk on each side, because its samples describe both levels.
        if a == 0:
            start = at[min(b + 1, count - 1)]
        elif b == count:
            end = at[max(a - 1, 1)]
        elif b - a >= 2 or len(places) == 1:
            doubtful.append((at[a - 1], at[min(b + 1, count)]))
    warm_up = start - (part.runs_ns or (start, end))[0] if start > part.start_ns else 0
    return replace(
        part, start_ns=start, end_ns=end, warm_up_ns=warm_up, left_out=(*left_out, *doubtful), doubtful=tuple(doubtful)
    )


def _is_sawtooth(part: SteadyPart, pauses: tuple[Span, ...]) -> bool:
    """Return whether waits are most of a rhythm.

    This is a loop that waits for its loader, not one that stops for a checkpoint.
    """
    return bool(part.periods) and sum(b - a for a, b in pauses) > (part.periods[-1] - part.periods[0]) / 2
