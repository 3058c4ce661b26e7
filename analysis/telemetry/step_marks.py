"""Step time measured from the step marks that the loop wrote. It is preferred over all estimates."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.pauses import (
    MIN_PAUSES,
    REASONS,
    WAIT_RATIO,
    Pauses,
    Round,
    is_pause,
    longer_than_mean,
    pauses_of,
    rare_phases,
    round_of,
    separate_pauses,
    times_between_phases,
    whole_bursts,
)
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.quantiles import NORMAL_90
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.marked_loops import TRAINING, Mark, MarkRow, choose_loop, spans_between, traced_ns
from sawtooth.analysis.telemetry.signal.long_steps import rare_long_steps
from sawtooth.analysis.telemetry.signal.warm_up import MIN_STEPS, slow_first_spans, without_queue_filling, without_warm_up
from sawtooth.analysis.units import in_words
from sawtooth.ingest.loop.step_boundary import step_in_words
from sawtooth.ingest.loop.step_parts import step_parts, with_first_waits
from sawtooth.ingest.manifest import Manifest

SETTLING_STEPS = 3  # Steps after the profile in which the profiler stores its trace.
MIN_SLOWDOWN = 0.03  # Smaller differences are usual between two parts of one loop.
NOTED_SLOWDOWN = 1.5  # Without a GPU, a note says if steps after the profile are longer by this factor.
SKEWED_RATIO = 1.5  # If the mean exceeds the median by this factor, a note explains the difference.
CPU_WARM_UP_STEPS = 10  # Longest warm-up without a GPU. Later slow steps come from other load on the host, and count.
RARE_STEPS, RARE_STEPS_CPU = 100, 10  # Evaluations and checkpoints this far apart are not part of a step; without a GPU: 10.
QUANTILES = 201  # Quantiles of step times that are stored. They show slow steps with a share of 0.5 %.
BATCH_MEANS = 10  # Batches for the error of the mean. Batch means allow for similar neighbouring steps.
# Share of the mean. The host may be ahead of the GPU at both ends. A warm-up that changes the mean by less is not noted.
MIN_HALF_WIDTH = 0.01

F64 = npt.NDArray[np.float64]


def step_mark_evidence(
    manifest: Manifest, library: Library, rank: int | None, *, cpu_only: bool = False
) -> StepTimeEvidence | None:
    """Return the step time evidence from the marks of ``rank`` (see ``by_marks``).

    Marks without a rank apply to the run.
    """
    refs = [ref for ref in manifest.recordings if ref.kind == "marks" and (ref.rank == rank or ref.rank is None)]
    traced = traced_ns(manifest, library, rank) if refs else None
    for ref in refs:
        with library.open(ref.id, derived=False) as recording:
            later = recording.select_list("step_marks", ["site", "wait_ns", "first_wait_ns", "loader_start_ns"])
            (metadata,) = recording.rows("SELECT metadata FROM recording")[0]
            fields = json.loads(metadata or "{}")
            rows = recording.rows(f"SELECT optimizer, step, end_ns, phase, {later} FROM step_marks ORDER BY end_ns")
        loop = choose_loop([MarkRow(*row) for row in rows], traced)
        by_recorder = fields.get("pid") is not None  # A user's own marks name no process.
        evidence = by_marks(loop.marks, cpu_only=cpu_only, detached=by_recorder)
        if evidence is not None:
            summary, *details = evidence.notes
            loop_notes = filter(None, [step_in_words(fields.get("sign"), fields.get("of"), loop.line), loop.about_others])
            trainer = fields.get("trainers", {}).get(loop.site, "")
            return replace(evidence, notes=(summary, *loop_notes, *details), trainer=trainer)
    return None


def by_marks(marks: Sequence[Mark], *, cpu_only: bool = False, detached: bool = False) -> StepTimeEvidence | None:
    """Return the mean time between marks of consecutive training steps, with its interval.

    ``marks`` are in time order. Steps before and after the profile count. If steps after the profile are slower, the interval
    includes both means. A profiler that stays attached slows steps, so these steps are left out of the mean unless ``detached``
    says that it was removed, as Sawtooth's recorder does. If it was removed, the host itself became slower, and all steps count.
    Rare evaluations between steps are reported separately.
    ``cpu_only`` means that nothing runs on a GPU. Then the host does not launch ahead, and no profiler stays attached.
    """
    spans, in_profile = spans_between(marks, TRAINING), spans_between(marks, {"profile"})
    profiled = [mark.step for mark in marks if mark.phase == "profile"]
    earlier = [span for span in spans if not profiled or span.step < profiled[0]]
    later = [span for span in spans if profiled and span.step > profiled[-1] + SETTLING_STEPS]
    first = slow_first_spans([*earlier, *later])
    earlier, later = ([span for span in spans if span not in first] for spans in (earlier, later))
    separate_phases = rare_phases([*earlier, *later], RARE_STEPS_CPU if cpu_only else RARE_STEPS)
    earlier, later = (with_first_waits(spans, separate_phases) for spans in (earlier, later))
    before, after = (times_between_phases(spans, separate_phases) for spans in (earlier, later))
    counted = _count_cpu_steps(before, after) if cpu_only else _count_gpu_steps(before, after, detached=detached)
    if counted is None:
        return None
    counted.notes.extend(
        f"The first {REASONS[span.phase]}, {in_words(span.ns / 1e6)}, is left out as warm-up." for span in first
    )
    together = [*earlier, *later]
    counted = counted.with_epochs([span.ns for span in (earlier if counted.left_out else together) if span.begins_epoch])
    pauses = pauses_of(together, counted.steps_ns, counted.pauses_ns)
    rounds = round_of(max(earlier, later, key=len), counted.steps_ns)
    in_step = set(counted.steps_ns.tolist())
    in_mean = [span for span in together if span.ns in in_step]
    parts = step_parts(in_mean, in_profile, cpu_only=cpu_only)
    evidence = _mean_evidence(counted, pauses, rounds, " outside the profile" if profiled else "")
    of_training = np.array([span.ns for span in in_mean if span.phase not in REASONS], np.float64)
    quantiles_ms = _quantiles_ms(of_training) if len(of_training) else evidence.quantiles_ms
    long_steps = rare_long_steps(in_mean, {mark.step: mark.end_ns for mark in marks})
    return replace(evidence, parts=parts, quantiles_ms=quantiles_ms, long_steps=long_steps)


class _CountedSteps(NamedTuple):
    """Times of the counted steps and of left-out pauses in ns, notes, and why steps are uneven.

    ``sides_ns`` are the means before and after the profile if steps are slower after it. ``left_out``: steps after the profile
    are not counted. ``enough_before``: enough steps before the profile are counted.
    """

    steps_ns: F64
    pauses_ns: F64
    notes: list[str]
    why_uneven: str
    sides_ns: tuple[float, ...] = ()
    enough_before: bool = False
    left_out: bool = False

    def with_epochs(self, starts_ns: Sequence[int]) -> _CountedSteps:
        """Count all steps that begin an epoch, also those left out as pauses or as warm-up."""
        left_out = [ns for ns in starts_ns if ns not in self.steps_ns]
        return self._replace(steps_ns=np.append(self.steps_ns, left_out), pauses_ns=np.setdiff1d(self.pauses_ns, starts_ns))


def _count_gpu_steps(before: Sequence[F64], after: Sequence[F64], *, detached: bool) -> _CountedSteps | None:
    """Count the steps of a host that launches ahead of a GPU, in whole bursts (see ``whole_bursts``)."""
    slower = _means_if_slower(before, after)
    left_out = slower is not None and not detached
    parts = before if left_out else [*before, *after]
    settled = without_warm_up(*parts)
    bursts = np.concatenate([whole_bursts(ns) for ns in settled])
    if len(bursts) < MIN_STEPS:
        return None
    steps_ns, pauses_ns = separate_pauses(bursts)
    notes = _first_steps_in_words(parts[0], settled[0], steps_ns)
    if slower is not None:
        if left_out:
            pauses_ns = np.concatenate([pauses_ns, separate_pauses(_settled_bursts(after))[1]])
            why = (
                f"other processes use the host or a profiler is still attached. These {sum(map(len, after)):,} steps are left "
                "out of the mean; the interval includes their mean."
            )
        else:
            why = "the host became slower. All steps count, and the interval includes the mean of each side."
        early_ms, late_ms = slower
        notes.append(
            f"After the profile, steps take {in_words(late_ms / 1e6)}, {100 * (late_ms / early_ms - 1):.0f} % longer, probably because {why}"
        )
    filled = np.concatenate([whole_bursts(ns) for ns in without_queue_filling(*settled)])
    later_ns = float(separate_pauses(filled)[0].mean()) if len(filled) >= MIN_STEPS else 0.0
    sides = slower or ()
    if later_ns > (1 + MIN_HALF_WIDTH) * steps_ns.mean():
        sides = *sides, (1 + MIN_HALF_WIDTH) * later_ns
        notes.append(
            f"Some steps at the start are shorter, because the host filled the GPU's queue or was faster. The interval includes "
            f"the mean without them, {in_words(later_ns / 1e6)}."
        )
    enough_before = sum(map(len, settled[: len(before)])) >= MIN_STEPS
    why_uneven = "the host runs ahead and then waits, or pauses"
    return _CountedSteps(steps_ns, pauses_ns, notes, why_uneven, sides, enough_before, left_out)


def _count_cpu_steps(before: Sequence[F64], after: Sequence[F64]) -> _CountedSteps | None:
    """Count the steps of a host without a GPU, whose long steps do not wait for earlier ones."""
    parts = [np.concatenate(before), np.concatenate(after)]
    settled = [
        later if _is_warm_up(part[: len(part) - len(later)], later) else part
        for part, later in zip(parts, without_warm_up(*parts), strict=True)
    ]
    if sum(map(len, settled)) < MIN_STEPS:
        return None
    steps_ns, pauses_ns = separate_pauses(np.concatenate(settled))
    notes = _first_steps_in_words(parts[0], settled[0], steps_ns)
    if min(map(len, parts)) >= MIN_STEPS and (ratio := float(parts[1].mean() / parts[0].mean())) > NOTED_SLOWDOWN:
        notes.append(
            f"After the profile, steps take {ratio:.2g} × as long, perhaps because each does more work, other processes use the host, or another loop runs; "
            "these steps count."
        )
    why_uneven = "these do more work, other processes use the host, or the loop pauses"
    return _CountedSteps(steps_ns, pauses_ns, notes, why_uneven, enough_before=len(settled[0]) >= MIN_STEPS)


def _mean_evidence(counted: _CountedSteps, pauses: tuple[Pauses, ...], rounds: Round | None, scope: str) -> StepTimeEvidence:
    """Return the mean of the counted steps with its interval and notes on ``scope`` of the run."""
    ns = counted.steps_ns
    mean = float(ns.mean())
    half = max(NORMAL_90 * _standard_error(ns), MIN_HALF_WIDTH * mean)
    low, high = min(mean - half, mean, *counted.sides_ns), max(mean + half, mean, *counted.sides_ns)
    why_uneven = f"one in {rounds.steps} is long" if rounds is not None else counted.why_uneven
    summary = f"The step time is the mean of {len(ns):,} steps that the loop marked{scope}; {_median_in_words(ns, why_uneven)}."
    left_out = [pause.left_out(mean / 1e6) for pause in pauses if not pause.in_step]
    return StepTimeEvidence(
        source="marks",
        ms=mean / 1e6,
        low_ms=low / 1e6,
        high_ms=high / 1e6,
        notes=(" ".join([summary, *left_out]), *counted.notes),
        pauses=pauses,
        typical_ms=float(np.median(ns)) / 1e6,
        round=rounds,
        before_high_ms=(mean + half if counted.left_out else high) / 1e6 if counted.enough_before else None,
        timed_s=float(ns.sum()) / 1e9,
        quantiles_ms=_quantiles_ms(ns),
    )


def _quantiles_ms(ns: F64) -> tuple[float, ...]:
    """Return evenly spaced quantiles of step times, in ms."""
    return tuple((np.quantile(ns, np.linspace(0, 1, QUANTILES)) / 1e6).tolist())


def _means_if_slower(before: Sequence[F64], after: Sequence[F64]) -> tuple[float, float] | None:
    """Return the mean step times before and after the profile if steps after it are slower.

    None if they are not, or if there are too few steps on one side.
    """
    if min(sum(map(len, before)), sum(map(len, after))) < 2 * MIN_STEPS:
        return None
    sides = [_settled_bursts(before), _settled_bursts(after)]
    pauses = [is_pause(ns) for ns in sides]
    if min(mask.sum() for mask in pauses) < MIN_PAUSES:
        # Remove pauses unless they recur on both sides. On one side alone, they would distort the ratio.
        sides = [ns[~mask] for ns, mask in zip(sides, pauses, strict=True)]
    early_ms, late_ms = (float(ns.mean()) for ns in sides)
    return (early_ms, late_ms) if late_ms > (1 + MIN_SLOWDOWN) * early_ms else None


def _settled_bursts(parts: Sequence[F64]) -> F64:
    """Return the steps of all parts after their warm-up, in whole bursts."""
    return np.concatenate([whole_bursts(ns) for ns in without_warm_up(*parts)])


def _is_warm_up(first: F64, later: F64) -> bool:
    """Return whether ``first`` is a warm-up without a GPU: few steps, slower than ``later`` on average."""
    return 0 < len(first) <= CPU_WARM_UP_STEPS and len(later) > 0 and bool(first.mean() > later.mean())


def _first_steps_in_words(part: F64, settled: F64, counted: F64) -> list[str]:
    """Return a sentence on whether unusual first steps count, if they change the mean; else nothing."""
    warm_up = part[: len(part) - len(settled)]
    if len(warm_up):
        mean_with_warm_up = float(np.concatenate([warm_up, counted]).mean())
        if abs(mean_with_warm_up / float(counted.mean()) - 1) <= MIN_HALF_WIDTH:
            return []
        length = in_words(float(warm_up.mean()) / 1e6)
        subject = (
            f"The first {len(warm_up):,} steps, {length} each, are" if len(warm_up) > 1 else f"The first step, {length}, is"
        )
        return [f"{subject} left out as warm-up; the mean would be {in_words(mean_with_warm_up / 1e6)} otherwise."]
    (later,) = without_warm_up(part)
    first = part[: len(part) - len(later)]
    if len(first) <= CPU_WARM_UP_STEPS or abs(first.mean() / later.mean() - 1) <= MIN_SLOWDOWN:
        return []
    # ``counted`` includes steps after the profile, so the two numbers in the sentence average to the reported mean.
    later_ns = (float(counted.sum()) - float(first.sum())) / max(len(counted) - len(first), 1)
    return [
        f"The first {len(first):,} steps took {in_words(float(first.mean()) / 1e6)} each, the later ones {in_words(later_ns / 1e6)}, "
        "because of other load on the host, or because their work differs. All of them count."
    ]


def _standard_error(ns: F64) -> float:
    """Return the standard error of the mean by batch means; batches end at waits.

    Batches are needed because neighbouring steps are similar. They end at waits, which end bursts, so they differ in length. The
    result is therefore the error of a ratio of two sums.
    """
    ends = np.linspace(0, len(ns), min(BATCH_MEANS, len(ns) // 2) + 1).astype(int)
    waits = longer_than_mean(ns, WAIT_RATIO) + 1
    if len(waits) > BATCH_MEANS:
        waits = np.append(waits, len(ns))
        ends = np.unique(np.concatenate([[0], waits[np.searchsorted(waits, ends[1:])]]))
    steps, batch_ns = np.diff(ends), np.add.reduceat(ns, ends[:-1])
    if (count := len(steps)) < 2:
        return float(ns.std())
    return float(np.sqrt(np.square(batch_ns - ns.mean() * steps).sum() / (count * (count - 1))) / steps.mean())


def _median_in_words(counted_ns: F64, why_uneven: str) -> str:
    """Return the median of the steps in words, or why it differs from the mean."""
    median, mean = float(np.median(counted_ns)), float(np.mean(counted_ns))
    if mean <= SKEWED_RATIO * median:
        return f"their median is {in_words(median / 1e6)}"
    return f"half of them took at most {in_words(median / 1e6)}; a few long ones take most of the remaining time, because {why_uneven}"
