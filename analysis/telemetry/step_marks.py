"""Step time from the loop's own step marks: a stopwatch in the run, stronger than every estimate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.pauses import Pauses, Round, StepSpan, pauses_of, round_of, seldom, stretches
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.store.recording_row import row_of
from sawtooth.analysis.telemetry.attribution import marked_gpus
from sawtooth.analysis.telemetry.marked_loops import TRAINING, Mark, MarkRow, choose_loop
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.sign import step_in_words
from sawtooth.ingest.manifest import Manifest

LEAST_STEPS = 10  # between marks: fewer steps may all belong to a warm-up
WARM_UP_WITHIN = 0.10  # leading steps that exceed the median of the later half by this share are the loop's warm-up
SETTLING = 3  # steps after the profile, in which the profiler stores its trace
SLOWED = 0.03  # smaller differences occur between any two parts of one loop
OTHERWISE = 1.5  # ratio after the profile, without a GPU, from which a note is shown although both parts count
FAR_FROM_MEDIAN = 1.5  # ratio of mean to median from which the median is not a typical step
WARM_UP_STEPS = 10  # without a GPU: only caches and threads fill; more slow steps are other work on the host, and count
PAUSE = 20.0  # times the median: an evaluation or a wait for the user, unless it recurs
WAITS = 1.5  # times the mean: there the host waits for work that it launched ahead
STEPS_APART = 100  # mean distance of evaluations or checkpoints outside the step: the host is only a few steps ahead
STEPS_APART_ALONE = 10  # without a GPU the host is not ahead; more frequent work belongs to the loop
PAUSES = 3  # pauses that recur this often belong to the loop, such as a checkpoint every hundred steps
BATCHES = 10  # of consecutive steps: their means give the error of the mean although neighbouring steps are similar
LEAST_HALF_WIDTH = 0.01  # host marks differ from the device's ends by a queue's length at both ends of the span
NORMAL_90 = 1.645


def step_mark_evidence(
    manifest: Manifest, library: Library, rank: int | None, *, host_alone: bool = False
) -> StepTimeEvidence | None:
    """Return the step time evidence from the marks of ``rank``; None with too few unprofiled marks.

    Marks without a rank apply to the run. ``host_alone`` means that nothing runs on a GPU, as in ``by_marks``.
    """
    refs = [ref for ref in manifest.recordings if ref.kind == "marks" and (ref.rank == rank or ref.rank is None)]
    traced_ns = _traced_ns(manifest, library, rank) if refs else None
    witnesses = []
    for ref in refs:
        with library.open(ref.id, derived=False) as recording:
            site = recording.select_list("step_marks", ["site"])
            (metadata,) = recording.rows("SELECT metadata FROM recording")[0]
            about = json.loads(metadata or "{}")
            rows = recording.rows(f"SELECT optimizer, step, end_ns, phase, {site} FROM step_marks ORDER BY end_ns")
        loop = choose_loop([MarkRow(*row) for row in rows], traced_ns)
        of_loop = by_marks(loop.marks, host_alone=host_alone)
        others = filter(None, [step_in_words(about.get("sign"), about.get("of"), loop.line), loop.others])
        witnesses.append(of_loop and replace(of_loop, notes=(*of_loop.notes[:1], *others, *of_loop.notes[1:])))
    return next((one for one in witnesses if one is not None), None)


def _traced_ns(manifest: Manifest, library: Library, rank: int | None) -> tuple[int, int] | None:
    """Return the trace's time of ``rank`` in Unix ns; None without a trace or on another clock."""
    for ref in manifest.recordings:
        if ref.kind == "trace" and (ref.rank == rank or rank is None):
            with library.open(ref.id, derived=False) as recording:
                row = row_of(recording)
            return (row.first_ns, row.last_ns) if row.clock == "unix" and row.first_ns and row.last_ns else None
    return None


def names_gpu(manifest: Manifest, library: Library) -> bool:
    """Return whether a process named its GPU with its marks."""
    return any(marked_gpus(manifest, library).values())


def by_marks(marks: Sequence[Mark], *, host_alone: bool = False) -> StepTimeEvidence | None:
    """Return the mean time between marks of consecutive training steps, with its interval.

    ``marks`` are in time order. Steps before and after the profile count. If those after it are slower, only those before it
    count, if there are enough, and the interval includes the others. The reason may be the profiler, which older recorders left
    attached, or the host. Rare evaluations between steps are separated.
    ``host_alone`` means that nothing runs on a GPU: the host is not ahead, and no profiler stays attached. Other users of the
    host are part of every step.
    """
    spans = [
        StepSpan(mark.step, mark.end_ns - before.end_ns, mark.phase)
        for before, mark in pairwise(marks)
        if mark.step == before.step + 1 and {before.phase, mark.phase} <= TRAINING
    ]
    profiled = [mark.step for mark in marks if mark.phase == "profile"]
    earlier = [span for span in spans if not profiled or span.step < profiled[0]]
    later = [span for span in spans if profiled and span.step > profiled[-1] + SETTLING]
    apart = seldom([*earlier, *later], STEPS_APART_ALONE if host_alone else STEPS_APART)
    before, after = (stretches(part, apart) for part in (earlier, later))
    reading = _of_host_alone(before, after) if host_alone else _of_queue(before, after)
    if reading is None:
        return None
    pauses = pauses_of([*earlier, *later], reading.kept, reading.left_out)
    rounds = round_of(max(earlier, later, key=len), reading.kept)
    return _mean_evidence(reading, pauses, rounds, " outside the profile" if profiled else "")


class _Reading(NamedTuple):
    """Times of the counted steps and of left-out pauses in ns, notes, and why steps are uneven.

    ``after_ns`` is the mean of slower steps after the profile, in ns. ``before`` says that enough steps before it count.
    """

    kept: npt.NDArray[np.float64]
    left_out: npt.NDArray[np.float64]
    notes: list[str]
    why_uneven: str
    after_ns: float = 0.0
    before: bool = False


def _of_queue(before: Sequence[npt.NDArray[np.float64]], after: Sequence[npt.NDArray[np.float64]]) -> _Reading | None:
    """Read the steps of a host that launches ahead of a GPU: full bursts, without profiler slowdown."""
    slower = _slower(before, after)
    parts = before if slower is not None else [*before, *after]
    settled = _settled(*parts)
    steady = np.concatenate([_whole_bursts(ns) for ns in settled])
    if len(steady) < LEAST_STEPS:
        return None
    kept, left_out = _without_pauses(steady)
    notes = _first_steps_in_words(parts[0], settled[0], kept)
    after_ns = (slower or 0.0) * float(kept.mean())
    if slower is not None:
        left_out = np.concatenate([left_out, _without_pauses(_steady(after))[1]])
        notes.append(
            f"After the profile its steps take {in_words(after_ns / 1e6)}, {100 * (slower - 1):.0f} % longer, as where others use the host too or "
            f"a profiler is still attached: those {sum(map(len, after)):,} are left out of the mean, and the interval reaches to them."
        )
    early = sum(map(len, settled[: len(before)])) >= LEAST_STEPS
    return _Reading(kept, left_out, notes, "the host runs ahead and then waits, or pauses", after_ns, early)


def _of_host_alone(before: Sequence[npt.NDArray[np.float64]], after: Sequence[npt.NDArray[np.float64]]) -> _Reading | None:
    """Read the steps of a host without a GPU, which has no queue: long steps do not wait for earlier ones."""
    parts = [np.concatenate(before), np.concatenate(after)]
    settled = [
        rest if _is_warm_up(part[: len(part) - len(rest)], rest) else part
        for part, rest in zip(parts, _settled(*parts), strict=True)
    ]
    steady = np.concatenate(settled)
    if len(steady) < LEAST_STEPS:
        return None
    kept, left_out = _without_pauses(steady)
    notes = _first_steps_in_words(parts[0], settled[0], kept)
    if min(map(len, parts)) >= LEAST_STEPS and (longer := float(parts[1].mean() / parts[0].mean())) > OTHERWISE:
        notes.append(
            f"After the profile its steps take {longer:.2g} × as long: others use the host, or it is another loop; those count."
        )
    return _Reading(kept, left_out, notes, "others use the host too, or the loop pauses", before=len(settled[0]) >= LEAST_STEPS)


def _mean_evidence(reading: _Reading, pauses: tuple[Pauses, ...], rounds: Round | None, where: str) -> StepTimeEvidence:
    """Return the mean of the counted steps with its interval and notes; ``where`` says which were marked."""
    kept = reading.kept
    mean = float(kept.mean())
    half = max(NORMAL_90 * _error(kept), LEAST_HALF_WIDTH * mean)
    why_uneven = f"one in {rounds.steps} is long" if rounds is not None else reading.why_uneven
    of = f"The step time is the mean of {len(kept):,} steps that the loop marked{where}; {_median_in_words(kept, why_uneven)}."
    what_not = [its.left_out(mean / 1e6) for its in pauses if not its.in_step]
    notes = (" ".join([of, *what_not]), *reading.notes)
    return StepTimeEvidence(
        "marks",
        mean / 1e6,
        (mean - half) / 1e6,
        max(mean + half, reading.after_ns) / 1e6,
        notes,
        pauses,
        float(np.median(kept)) / 1e6,
        rounds,
        (mean + half) / 1e6 if reading.before else None,
        float(kept.sum()) / 1e9,
    )


def _slower(before: Sequence[npt.NDArray[np.float64]], after: Sequence[npt.NDArray[np.float64]]) -> float | None:
    """Return the ratio of step times after and before the profile; None if it is not larger.

    It is also None if there are too few steps before or after the profile.
    """
    if min(sum(map(len, before)), sum(map(len, after))) < 2 * LEAST_STEPS:
        return None
    sides = [_steady(part) for part in (before, after)]
    paused = [_paused(ns) for ns in sides]
    if min(mask.sum() for mask in paused) < PAUSES:  # recurring pauses on one side only would make it the slower one
        sides = [ns[~mask] for ns, mask in zip(sides, paused, strict=True)]
    early, late = (float(ns.mean()) for ns in sides)
    return late / early if late > (1 + SLOWED) * early else None


def _steady(part: Sequence[npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return the settled steps of all parts in full bursts."""
    return np.concatenate([_whole_bursts(ns) for ns in _settled(*part)])


def _settled(*stretches: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
    """Return each part without leading steps that differ from the later half of all steps.

    Leading steps are slower, or faster while the host fills the queue. Steps in bursts, for example from a loader's workers,
    are rarely close to their median. So if half of the steps would be removed, none is warm-up.
    """
    every = np.concatenate(stretches)
    if len(every) < LEAST_STEPS:
        return list(stretches)
    usual = float(np.median(every[len(every) // 2 :]))
    settled = [ns[_first(np.abs(ns / usual - 1) <= WARM_UP_WITHIN) :] for ns in stretches]
    return settled if sum(map(len, settled)) >= len(every) / 2 else list(stretches)


def _is_warm_up(first: npt.NDArray[np.float64], rest: npt.NDArray[np.float64]) -> bool:
    """Return whether ``first`` is a warm-up without a GPU: few steps, slower than ``rest`` on average."""
    return 0 < len(first) <= WARM_UP_STEPS and len(rest) > 0 and bool(first.mean() > rest.mean())


def _first_steps_in_words(
    stretch: npt.NDArray[np.float64], settled: npt.NDArray[np.float64], kept: npt.NDArray[np.float64]
) -> list[str]:
    """Return a sentence on whether unusual first steps count, if it matters; ``kept`` is all that counts."""
    left_out = stretch[: len(stretch) - len(settled)]
    mean_ms = float(kept.mean()) / 1e6
    if len(left_out):
        with_them_ms = float(np.concatenate([left_out, kept]).mean()) / 1e6
        if abs(with_them_ms / mean_ms - 1) <= LEAST_HALF_WIDTH:
            return []
        those = f"The first {len(left_out):,} steps, {in_words(float(left_out.mean()) / 1e6)} each, are"
        one = f"The first step, {in_words(float(left_out[0]) / 1e6)}, is"
        return [
            f"{one if len(left_out) == 1 else those} left out as warm-up: with {'it' if len(left_out) == 1 else 'them'} the mean is {in_words(with_them_ms)}."
        ]
    (later,) = _settled(stretch)
    first = stretch[: len(stretch) - len(later)]
    if len(first) <= WARM_UP_STEPS or abs(first.mean() / later.mean() - 1) <= SLOWED:
        return []
    others = float(kept.sum()) - float(first.sum())  # includes steps after the profile, so that both parts give the mean
    first_ms, later_ms = float(first.mean()) / 1e6, others / max(len(kept) - len(first), 1) / 1e6
    return [
        f"Its first {len(first):,} steps took {in_words(first_ms)} each, the later {in_words(later_ms)}, as where others use the host for a while: all of them count."
    ]


def _first(among: npt.NDArray[np.bool_]) -> int:
    """Return the index of the first true value, the length if there is none."""
    return int(np.argmax(among)) if among.any() else len(among)


def _whole_bursts(ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the steps from the end of the first wait to the end of the last, if the loop waits in turns.

    A host that reads the loss every tenth step launches nine and then waits for all ten. A part that ends between two waits
    contains launches without their work; a part that begins there contains work without its launches.
    """
    waits = np.flatnonzero(ns > ns.mean()) if len(ns) else ns
    if len(waits) <= PAUSES or ns[waits].mean() < WAITS * ns.mean():
        return ns
    whole = ns[waits[0] + 1 : waits[-1] + 1]
    return whole if len(whole) >= len(ns) / 2 else ns


def _without_pauses(ns: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the steps without pauses, and the pauses; frequent pauses belong to the loop and are steps."""
    paused = _paused(ns)
    own = paused.sum() >= PAUSES
    return ns[~paused | own], ns[paused & ~own]


def _paused(ns: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    return ns > PAUSE * np.median(ns) if len(ns) else ns > 0


def _error(ns: npt.NDArray[np.float64]) -> float:
    """Return the standard error of the mean, from consecutive batches that end with a wait.

    Neighbouring steps are similar, and a wait ends a burst. Batches differ in length, so this is the error of a ratio of two
    sums.
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


def _median_in_words(counted_ns: npt.NDArray[np.float64], why_uneven: str) -> str:
    """Return the median of the steps in words, or why it differs from the mean."""
    median, mean = float(np.median(counted_ns)), float(np.mean(counted_ns))
    if mean <= FAR_FROM_MEDIAN * median:
        return f"their median is {in_words(median / 1e6)}"
    return f"half of them took up to {in_words(median / 1e6)}, and a few long ones the rest: {why_uneven}"
