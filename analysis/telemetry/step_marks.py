"""The step time by the loop's own marks: a stopwatch in the run's files, which outranks every estimate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.witness import Witness
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.leading import leading
from sawtooth.ingest.manifest import Manifest

LEAST_STEPS = 10  # between marks: fewer may all belong to a warm-up
WARM_UP_WITHIN = 0.10  # leading steps this much above the median of the later half are the loop's warm-up
SETTLING = 3  # steps after the profile, in which its trace is taken off the profiler
SLOWED = 0.03  # less is no more than two stretches of one loop differ
FAR_FROM_MEDIAN = 1.5  # the mean: then the median is no step that anybody knows
PAUSE = 20.0  # times the median: evaluation or a wait for people, unless it comes again and again
WAITS = 1.5  # times the mean: the host waits there for what it launched ahead
PAUSES = 3  # a pause that comes as often is the loop's own: a checkpoint every hundred steps
BATCHES = 10  # of consecutive steps, whose means show what the mean is worth although steps follow each other alike
LEAST_HALF_WIDTH = 0.01  # the host's marks are a queue's length off the device's ends at both ends of the span
NORMAL_90 = 1.645


def witness(manifest: Manifest, library: Library, rank: int | None, *, may_stay: bool = True) -> Witness | None:
    """Return what the marks of ``rank`` say (of the run, where marks carry no rank); None without enough marks outside the profile.

    ``may_stay`` False: the profile was of the host alone, of which no profiler stays attached.
    """
    refs = [ref for ref in manifest.recordings if ref.kind == "marks" and (ref.rank == rank or ref.rank is None)]
    witnesses = []
    for ref in refs:
        with library.open(ref.id, derived=False) as recording:
            rows = recording.rows("SELECT optimizer, step, end_ns, phase FROM step_marks ORDER BY end_ns")
        loop = _leading(rows)
        of_loop = by_marks([Mark(*row[1:]) for row in rows if row[0] == loop], may_stay=may_stay)
        witnesses.append(
            of_loop and replace(of_loop, notes=(*of_loop.notes[:1], *_other_loops(rows, loop), *of_loop.notes[1:]))
        )
    return next((one for one in witnesses if one is not None), None)


class Mark(NamedTuple):
    """A step as the loop marked it."""

    step: int
    end_ns: int
    phase: str


def _leading(rows: Sequence[tuple[Any, ...]]) -> int:
    """Return the optimizer whose steps are the loop's; ``rows`` are its number and what a ``Mark`` holds."""
    return leading((optimizer, phase) for optimizer, _, _, phase in rows)


def _other_loops(rows: Sequence[tuple[Any, ...]], loop: int) -> list[str]:
    """Say in a sentence what steps took whose optimizer began after that of ``loop`` had made its last, or ended before its first: another part of the
    training, of which nothing else is told."""
    ends: dict[int, list[int]] = defaultdict(list)
    for optimizer, _, end_ns, _ in rows:
        ends[optimizer].append(end_ns)
    if not ends[loop]:
        return []
    first, last = ends[loop][0], ends[loop][-1]
    others = [times for times in ends.values() if len(times) > LEAST_STEPS and (times[0] > last or times[-1] < first)]
    if not others:
        return []
    longest = max(others, key=lambda times: times[-1] - times[0])
    step_ms = float(np.diff(longest).mean()) / 1e6
    return [
        f"Another optimizer made {len(longest):,} steps {'after' if longest[0] > last else 'before'} these, of {in_words(step_ms)} each: all that is told is of this loop."
    ]


def by_marks(marks: Sequence[Mark], *, may_stay: bool = True) -> Witness | None:
    """Return the mean time between marks of consecutive training steps, with its interval; ``marks`` are in time order.

    Steps before and after the profile speak. Where they are slower after it, those before speak alone if they are enough: a profiler that stays
    attached slows the host, as recorders before this one left it. Where none may, the host was busy elsewhere in one of the two, and both count.
    """
    spans = [
        (step, end - before)
        for (previous, before, first), (step, end, second) in pairwise(marks)
        if step == previous + 1 and first == second == "train"
    ]
    profiled = [step for step, _, phase in marks if phase == "profile"]
    earlier = np.array([ns for step, ns in spans if not profiled or step < profiled[0]], np.float64)
    later = np.array([ns for step, ns in spans if profiled and step > profiled[-1] + SETTLING], np.float64)
    slower = _slower(earlier, later) if may_stay else None
    steady = _steady(earlier) if slower is not None else _steady(earlier, later)
    if sum(map(len, steady)) < LEAST_STEPS:
        return None
    kept, pauses = _without_pauses(np.concatenate(steady))
    mean = float(kept.mean())
    half = max(NORMAL_90 * _error(kept), LEAST_HALF_WIDTH * mean)
    where = " outside the profile" if profiled else ""
    notes = [f"The step time is the mean of {len(kept):,} steps that the loop marked{where}; {_median_in_words(kept)}."]
    if slower is not None:
        notes.append(
            f"After the profile its steps take {in_words(slower * mean / 1e6)}, {100 * (slower - 1):.0f} % longer, as where others use the host too or a profiler is "
            f"still attached: those {len(later):,} are left out."
        )
    if pauses:
        notes.append(f"{pauses} of its pauses, {PAUSE:g} times as long as a step and more, are left out.")
    return Witness("marks", mean / 1e6, (mean - half) / 1e6, (mean + half) / 1e6, tuple(notes))


def _slower(earlier: npt.NDArray[np.float64], later: npt.NDArray[np.float64]) -> float | None:
    """Return how many times as long steps take after the profile; None where they are no longer, or too few came before it to speak alone."""
    if min(len(earlier), len(later)) < 2 * LEAST_STEPS:
        return None
    before, after = (float(_without_pauses(*_steady(ns))[0].mean()) for ns in (earlier, later))
    return after / before if after > (1 + SLOWED) * before else None


def _steady(*stretches: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
    """Return each stretch of steps without its first steps that are slower, or quicker while the host fills the queue, than the later half of all,
    and in whole bursts.

    Steps that come in bursts, as from a loader's workers, are rarely like their median: where half of them would go, none is a warm-up.
    """
    every = np.concatenate(stretches)
    if len(every) < LEAST_STEPS:
        return list(stretches)
    usual = float(np.median(every[len(every) // 2 :]))
    settled = [ns[_first(np.abs(ns / usual - 1) <= WARM_UP_WITHIN) :] for ns in stretches]
    if sum(map(len, settled)) < len(every) / 2:
        settled = list(stretches)
    return [_whole_bursts(ns) for ns in settled]


def _first(among: npt.NDArray[np.bool_]) -> int:
    """Return the index of the first that is true, the length where none is."""
    return int(np.argmax(among)) if among.any() else len(among)


def _whole_bursts(ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the steps from the end of the first wait to the end of the last, where the loop runs ahead and waits, in turns.

    A host that reads the loss every tenth step launches nine and waits for all ten there: a stretch that ends between two waits holds launches
    whose work it does not hold, and one that begins there the reverse.
    """
    waits = np.flatnonzero(ns > ns.mean()) if len(ns) else ns
    if len(waits) <= PAUSES or ns[waits].mean() < WAITS * ns.mean():
        return ns
    whole = ns[waits[0] + 1 : waits[-1] + 1]
    return whole if len(whole) >= len(ns) / 2 else ns


def _without_pauses(ns: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], int]:
    paused = ns > PAUSE * np.median(ns)
    count = int(paused.sum())
    return (ns[~paused], count) if 0 < count < PAUSES else (ns, 0)


def _error(ns: npt.NDArray[np.float64]) -> float:
    """Return the standard error of the mean, from consecutive batches that end with a wait: steps next to each other are alike, and a wait ends a burst.

    Batches differ in length; this is the error of a ratio of two sums.
    """
    ends = np.linspace(0, len(ns), min(BATCHES, len(ns) // 2) + 1).astype(int)
    waits = np.flatnonzero(ns > WAITS * ns.mean()) + 1
    if len(waits) > BATCHES:
        waits = np.append(waits, len(ns))
        ends = np.unique(np.concatenate([[0], waits[np.searchsorted(waits, ends[1:])]]))
    steps, took = np.diff(ends), np.add.reduceat(ns, ends[:-1])
    count = len(steps)
    if count < 2:
        return float(ns.std())
    return float(np.sqrt(np.square(took - ns.mean() * steps).sum() / (count * (count - 1))) / steps.mean())


def _median_in_words(kept_ns: npt.NDArray[np.float64]) -> str:
    """Say the median of the steps, or why it is not like their mean."""
    median, mean = float(np.median(kept_ns)), float(np.mean(kept_ns))
    if mean <= FAR_FROM_MEDIAN * median:
        return f"their median is {in_words(median / 1e6)}"
    return f"half of them took up to {in_words(median / 1e6)}, and a few long ones the rest: the host runs ahead and then waits, or pauses"
