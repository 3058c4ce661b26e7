"""Pauses between training steps, from the loop's own marks: evaluations, checkpoints and unknown ones.

If a long gap recurs regularly, once every few steps, the loop has rounds, as in reinforcement learning. Rounds are reported
separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.reading import Reading, worst
from sawtooth.analysis.units import in_times, in_words, significant
from sawtooth.ingest.loop.rounds import MIN_LONG_SHARE, rounds_of
from sawtooth.ingest.loop.step_parts import StepSpan

Reason = Literal["evaluation", "checkpoint", "unknown"]
REASONS: dict[str, Reason] = {"eval": "evaluation", "checkpoint": "checkpoint"}  # by the phase of the mark that ends the span
MOST_DISTANCE_DIFFERENCE = (
    1  # in steps, of distances between pauses; also of the first one from step 0, because a loop counts from 0 or 1
)
DOES: dict[Reason, str] = {"evaluation": "evaluated", "checkpoint": "wrote a checkpoint", "unknown": "stood still"}
PAUSE_RATIO = 20.0  # A step this many times the median contains an evaluation or a wait for the user, unless it recurs.
LEAST_PAUSES = 3  # Pauses that recur this often belong to the loop, such as a checkpoint every hundred steps.
WAIT_RATIO = 1.5  # In steps longer than this multiple of the mean, the host waits for work that it launched ahead.
SLOW_RATIO = 1.5  # A step this many times the median contains work that the others do not.
MAJORITY = 0.5  # A larger share is a majority: of the first steps of rounds, or of the time before the first step of a round.


@dataclass(frozen=True)
class Pauses:
    """The pauses of one ``reason``.

    ``steps`` are the numbers of the steps that follow the pauses. ``ms`` are the pauses' lengths: the time of the span minus that
    of a usual step. ``among`` is the number of steps, ``in_step`` whether the step time includes the pauses.
    """

    reason: Reason
    steps: tuple[int, ...]
    ms: tuple[float, ...]
    among: int
    in_step: bool

    @property
    def period(self) -> float | None:
        """The number of steps between pauses; None if they are not equally far apart.

        Two pauses are enough if the first one is about one such distance, or several, after step 0.
        """
        distances = np.diff(self.steps)
        if (
            not len(distances) or np.ptp(distances) > MOST_DISTANCE_DIFFERENCE or distances.min() <= 0
        ):  # a script's own marks may restart in each epoch
            return None
        mean_distance = float(distances.mean())
        offset = self.steps[0] % mean_distance
        return mean_distance if len(distances) > 1 or min(offset, mean_distance - offset) <= MOST_DISTANCE_DIFFERENCE else None

    @property
    def every(self) -> float:
        """The number of steps per pause: from the period if the reason is known, else from their count."""
        return (self.period if self.reason != "unknown" else None) or self.among / len(self.steps)

    @property
    def mean_ms(self) -> float:
        """The mean length of a pause."""
        return float(np.mean(self.ms))

    @property
    def ms_per_step(self) -> float:
        """The mean time per step in pauses."""
        return self.mean_ms / self.every

    @property
    def often(self) -> str:
        """The frequency in words, such as "every 60 steps" or "2 times in 290 steps"."""
        if self.reason != "unknown" and self.period is not None:
            return f"every {self.every:,.0f} steps"
        return f"{in_times(len(self.steps))} in {self.among:,} steps"

    @property
    def long(self) -> str:
        """The length in words, such as "1.3 s to 1.5 s"."""
        shortest, longest = (in_words(ms, 2) for ms in (min(self.ms), max(self.ms)))
        return shortest if shortest == longest else f"{shortest} to {longest}"

    def share(self, step_ms: float) -> float:
        """Return their share of the run's time if a step takes ``step_ms``."""
        return self.ms_per_step / (step_ms if self.in_step else step_ms + self.ms_per_step)

    def left_out(self, step_ms: float) -> str:
        """Say that the step time excludes these pauses, and how long the step is with them."""
        per_pause = " each" if len(self.ms) > 1 else ""
        return (
            f"Between steps, the loop {DOES[self.reason]} {in_times(len(self.ms))}, {self.long}{per_pause}; this is not part of the step time. "
            f"These pauses take {significant(100 * self.share(step_ms), 2)} % of the time; with them a step takes {in_words(step_ms + self.ms_per_step)} on average."
        )


def rare_phases(spans: Sequence[StepSpan], steps_apart: int) -> frozenset[str]:
    """Return the phases that are separated from steps.

    Work that recurs within ``steps_apart`` steps belongs to the loop.
    """
    return frozenset(phase for phase in REASONS if 0 < steps_apart * sum(span.phase == phase for span in spans) <= len(spans))


def stretches(spans: Sequence[StepSpan], separate_phases: frozenset[str]) -> list[npt.NDArray[np.float64]]:
    """Return the steps' times, as one part or cut at the ``separate_phases``.

    The host's queue fills again in each part.
    """
    ns = np.array([span.ns for span in spans], np.float64)
    at = [index for index, span in enumerate(spans) if span.phase in separate_phases]
    return [ns[start + 1 : end] for start, end in pairwise([-1, *at, len(ns)])]


def pauses_of(
    spans: Sequence[StepSpan], counted_ns: npt.NDArray[np.float64], left_out_ns: npt.NDArray[np.float64]
) -> tuple[Pauses, ...]:
    """Return the pauses between steps, by reason.

    ``counted_ns`` are the step times over which the mean is computed, ``left_out_ns`` those of left-out pauses.
    A span is identified by its time, which has nanosecond resolution.
    """
    steps_ns = counted_ns[~np.isin(counted_ns, [span.ns for span in spans if span.phase in REASONS])]
    if not len(steps_ns):
        return ()
    left_out = set(left_out_ns.tolist())
    usual = float(steps_ns.mean())
    by_reason: dict[Reason, list[StepSpan]] = {}
    for span in spans:
        if span.phase in REASONS or span.ns in left_out:
            by_reason.setdefault(REASONS.get(span.phase, "unknown"), []).append(span)
    return tuple(
        Pauses(
            reason,
            tuple(span.step for span in pause_spans),
            tuple(max(span.ns - usual, 0.0) / 1e6 for span in pause_spans),
            len(spans),
            in_step=bool(np.isin([span.ns for span in pause_spans], counted_ns).any()),
        )
        for reason, pause_spans in by_reason.items()
    )


def with_doubt(step: Reading, pauses: Sequence[Pauses]) -> Reading:
    """Return ``step`` with its trust lowered to caution if a user's timing may exceed its interval.

    A user who times a training with a clock leaves its evaluations out, but includes other pauses. This is so if these pauses
    outside the step time, added to it, exceed the interval.
    """
    left_out_ms = sum(pause.ms_per_step for pause in pauses if not pause.in_step and pause.reason != "evaluation")
    if step.value is None or step.high is None or step.value + left_out_ms <= step.high:
        return step
    return replace(step, trust=worst(step.trust, "caution"))


@dataclass(frozen=True)
class Round:
    """A round of ``steps`` steps.

    Each step takes ``step_ms`` on average including the time before the first one, and ``usual_ms`` without it. ``evaluates``
    means that the model is in evaluation mode before the first step of most rounds. ``profiled`` means that the
    profile contains a full round.
    """

    steps: int
    step_ms: float
    usual_ms: float
    evaluates: bool = False
    profiled: bool = False

    @property
    def between_ms(self) -> float:
        """The time before the first step of a round."""
        return self.steps * (self.step_ms - self.usual_ms)

    @property
    def sentence(self) -> str:
        """The round's time, as a sentence.

        Example: A round of 8 steps takes 49.4 ms: 24.1 ms in its steps and 25.3 ms before the first (a rollout, say).
        """
        of_steps, before_in_words = in_words(self.steps * self.usual_ms), in_words(self.between_ms)
        example = "a rollout or an evaluation" if self.evaluates else "a rollout, say"
        return f"A round of {self.steps} steps takes {in_words(self.steps * self.step_ms)}: {of_steps} in its steps and {before_in_words} before the first ({example})."


@dataclass(frozen=True)
class Profiled:
    """Data on rounds from a profile, in ms.

    It has the counted steps, the mean wait of a step for batches, whether anything ``loads`` them, and the GPU's own work per
    step; ``floor_ms`` is None if unknown.
    """

    steps_ms: Sequence[float]
    waits_ms: float = 0.0
    loads: bool = False
    floor_ms: float | None = None


def separate_pauses(ns: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the steps without pauses, and the pauses; frequent pauses belong to the loop and are steps."""
    pauses = is_pause(ns)
    if pauses.sum() >= LEAST_PAUSES:
        return ns, ns[:0]
    return ns[~pauses], ns[pauses]


def is_pause(ns: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which steps contain a pause."""
    return ns > PAUSE_RATIO * np.median(ns) if len(ns) else ns > 0


def whole_bursts(ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the steps between the ends of the first and the last wait, if the loop waits periodically.

    A host that reads the loss every tenth step launches nine steps and then waits for all ten. If the counted steps began between
    two waits, some launches would count without their GPU work, or some GPU work without its launches.
    """
    waits = longer_than_mean(ns, 1.0)
    if len(waits) <= LEAST_PAUSES or ns[waits].mean() < WAIT_RATIO * ns.mean():
        return ns
    whole = ns[waits[0] + 1 : waits[-1] + 1]
    return whole if len(whole) >= len(ns) / 2 else ns


def longer_than_mean(ns: npt.NDArray[np.float64], factor: float) -> npt.NDArray[np.intp]:
    """Return the positions of the steps longer than ``factor`` times their mean."""
    return np.flatnonzero(ns > factor * ns.mean()) if len(ns) else np.empty(0, np.intp)


def slow_steps(steps_ns: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return the share of steps much longer than the median, and their mean excess over it in ms."""
    usual = float(np.median(steps_ns))
    slow = steps_ns[steps_ns > SLOW_RATIO * usual]
    return len(slow) / len(steps_ns), float(slow.mean() - usual) / 1e6 if len(slow) else 0.0


def round_of(spans: Sequence[StepSpan], counted_ns: npt.NDArray[np.float64]) -> Round | None:
    """Return the rounds of consecutive ``spans``; None if there are none.

    Also None if most of the long steps are checkpoints or begin an epoch. ``counted_ns`` are the step times over which the mean is
    computed.
    """
    rhythm = rounds_of([span.ns for span in spans])
    if rhythm is None:
        return None
    long = [span for span in spans if span.ns > rhythm.over]
    phases = [span.phase for span in long]
    if max(phases.count("checkpoint"), sum(span.begins_epoch for span in long)) > MAJORITY * len(phases):
        return None
    usual_ns = counted_ns[counted_ns <= rhythm.over]
    step_ms, usual_ms = float(counted_ns.mean()) / 1e6, float(usual_ns.mean()) / 1e6
    return Round(rhythm.steps, step_ms, usual_ms, phases.count("eval") > MAJORITY * len(phases))


def rounds_beside(by_marks: Round, profiled: Profiled) -> Round | None:
    """Return the rounds of ``by_marks``, checked with a profile.

    None if the long steps are waits for batches, or if the device's steps show no long time. If steps are shorter than their
    kernels, the host runs ahead of the GPU and waits for it occasionally. Then its marks do not show where the time goes, but the
    device's steps do. A loader with one worker per step of the round makes the same pattern. If the profile contains a full round,
    its waits for batches decide. Otherwise, any loading of batches counts as the reason.
    """
    ms = sorted(profiled.steps_ms)
    usual_ms = by_marks.usual_ms
    if profiled.floor_ms is not None and usual_ms < profiled.floor_ms and ms:
        usual_ms = min(by_marks.step_ms * ms[(len(ms) - 1) // 2] * len(ms) / sum(ms), by_marks.step_ms)
    known = replace(by_marks, usual_ms=usual_ms, profiled=len(ms) >= by_marks.steps)
    before_ms = known.step_ms - known.usual_ms
    if before_ms < MIN_LONG_SHARE * known.step_ms:
        return None
    loading = profiled.waits_ms >= MAJORITY * before_ms if known.profiled else profiled.loads
    return None if loading else known
