"""Pauses between training steps, from the loop's own marks: evaluations, checkpoints, unknown.

A loop whose long gap recurs regularly, every few steps, has rounds, as in reinforcement learning. Rounds are reported
separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Literal

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.reading import Reading, lowest_trust
from sawtooth.analysis.units import in_times, in_words, significant
from sawtooth.ingest.loop.rounds import MIN_LONG_SHARE, find_rounds
from sawtooth.ingest.loop.step_parts import StepSpan

Reason = Literal["evaluation", "checkpoint", "unknown"]
REASONS: dict[str, Reason] = {"eval": "evaluation", "checkpoint": "checkpoint"}  # By the phase of the mark that ends the span.
# Distances between periodic pauses may differ by this many steps, because a loop counts its steps from 0 or 1.
MAX_DISTANCE_DIFFERENCE = 1
VERB: dict[Reason, str] = {"evaluation": "evaluated", "checkpoint": "wrote a checkpoint", "unknown": "paused"}
# A step longer than this many medians contains an evaluation or a wait for the user, unless such steps recur.
PAUSE_RATIO = 20.0
MIN_PAUSES = 3  # Pauses of a run. With at least this number, they belong to the loop, such as a checkpoint every hundred steps.
WAIT_RATIO = 1.5  # If long steps take this multiple of the mean, the host waits in them for work that it launched ahead.
MAJORITY = 0.5  # A larger share of the first steps of rounds, or of the time before them, is a majority.


@dataclass(frozen=True)
class Pauses:
    """The pauses of one ``reason``.

    ``steps`` are the numbers of the steps that follow the pauses. ``ms`` are the pauses' lengths: the time of the span minus the
    mean step time, both without waits for epochs' first batches if the step time includes these. ``step_count`` is the number of all
    steps. ``in_step`` is whether the step time includes the pauses. ``ranks`` are the job's ranks that do this while the others
    wait for them; empty if all ranks do, or in a run with one rank.
    """

    reason: Reason
    steps: tuple[int, ...]
    ms: tuple[float, ...]
    step_count: int
    in_step: bool
    ranks: tuple[int, ...] = ()

    @property
    def period(self) -> float | None:
        """The number of steps between pauses; None if it varies.

        Two pauses suffice if the first pause is a multiple of their distance after step 0, to within one step.
        """
        distances = np.diff(self.steps)
        # The distance is negative if a script counts its marks from 0 again in each epoch.
        if not len(distances) or np.ptp(distances) > MAX_DISTANCE_DIFFERENCE or distances.min() <= 0:
            return None
        mean_distance = float(distances.mean())
        offset = self.steps[0] % mean_distance
        return mean_distance if len(distances) > 1 or min(offset, mean_distance - offset) <= MAX_DISTANCE_DIFFERENCE else None

    @property
    def every(self) -> float:
        """The number of steps per pause: the period of known or one rank's pauses, else the mean."""
        return (self.period if self._recurs else None) or self.step_count / len(self.steps)

    @property
    def _recurs(self) -> bool:
        """Whether the pauses are known to be the loop's own: their reason is known, or one rank makes them."""
        return self.reason != "unknown" or bool(self.ranks)

    @property
    def mean_ms(self) -> float:
        """The mean length of a pause in ms."""
        return float(np.mean(self.ms))

    @property
    def ms_per_step(self) -> float:
        """The time in pauses per step, in ms."""
        return self.mean_ms / self.every

    @property
    def frequency_text(self) -> str:
        """The frequency in words, such as "every 60 steps" or "2 times in 290 steps"."""
        if self._recurs and self.period is not None:
            return f"every {self.every:,.0f} steps"
        return f"{in_times(len(self.steps))} in {self.step_count:,} steps"

    @property
    def length_text(self) -> str:
        """The length in words, such as "1.3 s to 1.5 s"."""
        shortest, longest = (in_words(ms, 2) for ms in (min(self.ms), max(self.ms)))
        return shortest if shortest == longest else f"{shortest} to {longest}"

    def share(self, step_ms: float) -> float:
        """Return the pauses' share of the run's time if a step takes ``step_ms``."""
        return self.ms_per_step / (step_ms if self.in_step else step_ms + self.ms_per_step)

    def left_out(self, step_ms: float) -> str:
        """Return sentences on the length of these pauses, and on the mean step time including the pauses."""
        per_pause = " each" if len(self.ms) > 1 else ""
        return (
            f"Between steps, the loop {VERB[self.reason]} {in_times(len(self.ms))} ({self.length_text}{per_pause}). The step time does not include these pauses. "
            f"They take {significant(100 * self.share(step_ms), 2)} % of the run's time; including them, a step takes {in_words(step_ms + self.ms_per_step)} on average."
        )


def rare_phases(spans: Sequence[StepSpan], steps_apart: int) -> frozenset[str]:
    """Return the phases (evaluation, checkpoint) whose time is not part of the steps.

    A phase that occurs more often than once in ``steps_apart`` steps belongs to the loop and is not returned.
    """
    return frozenset(phase for phase in REASONS if 0 < steps_apart * sum(span.phase == phase for span in spans) <= len(spans))


def times_between_phases(spans: Sequence[StepSpan], separate_phases: frozenset[str]) -> list[npt.NDArray[np.float64]]:
    """Return the steps' times in ns, split at the spans of ``separate_phases``, which are left out.

    The split is needed because the host fills its launch queue again after such a span.
    """
    ns = np.array([span.ns for span in spans], np.float64)
    at = [index for index, span in enumerate(spans) if span.phase in separate_phases]
    return [ns[start + 1 : end] for start, end in pairwise([-1, *at, len(ns)])]


def pauses_of(
    spans: Sequence[StepSpan], counted_ns: npt.NDArray[np.float64], left_out_ns: npt.NDArray[np.float64]
) -> tuple[Pauses, ...]:
    """Return the pauses between steps, by reason.

    ``counted_ns`` are the step times in the mean. ``left_out_ns`` are times of spans that the mean does not include. Both are
    matched with ``spans`` by value, because times in nanoseconds are almost always distinct.
    """
    counted, left_out = set(counted_ns.tolist()), set(left_out_ns.tolist())
    usual_ns = [_without_first_wait(span) for span in spans if span.ns in counted and span.phase not in REASONS]
    if not usual_ns:
        return ()
    mean_ns = fmean(usual_ns)
    by_reason: dict[Reason, list[StepSpan]] = {}
    for span in spans:
        if span.phase in REASONS or span.ns in left_out:
            by_reason.setdefault(REASONS.get(span.phase, "unknown"), []).append(span)
    return tuple(
        Pauses(
            reason,
            tuple(span.step for span in pause_spans),
            tuple(
                max((_without_first_wait(span) if span.ns in counted else span.ns) - mean_ns, 0.0) / 1e6 for span in pause_spans
            ),
            len(spans),
            in_step=any(span.ns in counted for span in pause_spans),
        )
        for reason, pause_spans in by_reason.items()
    )


def _without_first_wait(span: StepSpan) -> int:
    """Return the time of ``span`` in ns without the wait for an epoch's first batch."""
    return span.ns - min(span.first_ns, span.ns)


def with_doubt(step: Reading, pauses: Sequence[Pauses]) -> Reading:
    """Return ``step`` with its trust lowered to caution if a user's own timing may exceed its interval.

    A user who times a training leaves out evaluations, but not other pauses. The trust is lowered if the step time plus the
    pauses outside the step time is above the interval.
    """
    left_out_ms = sum(pause.ms_per_step for pause in pauses if not pause.in_step and pause.reason != "evaluation")
    if step.value is None or step.high is None or step.value + left_out_ms <= step.high:
        return step
    return replace(step, trust=lowest_trust(step.trust, "caution"))


@dataclass(frozen=True)
class Round:
    """A round of ``steps`` steps.

    A step takes ``step_ms`` on average, including its share of the time before the round's first step, and ``usual_ms`` without
    that share. ``evaluates`` means that the model is in evaluation mode before the first step of most rounds. ``profiled``
    means that the profile contains a full round.
    """

    steps: int
    step_ms: float
    usual_ms: float
    evaluates: bool = False
    profiled: bool = False

    @property
    def between_ms(self) -> float:
        """The time before the first step of a round, in ms."""
        return self.steps * (self.step_ms - self.usual_ms)

    @property
    def sentence(self) -> str:
        """The round's time, as a sentence.

        Example: A round of 8 steps takes 49.4 ms: 24.1 ms in its steps and 25.3 ms before the first step (e.g. a rollout or an evaluation).
        """
        of_steps, before_in_words = in_words(self.steps * self.usual_ms), in_words(self.between_ms)
        example = "a rollout or an evaluation" if self.evaluates else "e.g. a rollout or an evaluation"
        return f"A round of {self.steps} steps takes {in_words(self.steps * self.step_ms)}: {of_steps} in its steps and {before_in_words} before the first step ({example})."


@dataclass(frozen=True)
class ProfileData:
    """The data of a profile that confirm or refute rounds, in ms.

    ``steps_ms`` are the counted steps. ``waits_ms`` is the mean wait for batches per step. ``loads`` is whether a loader makes the
    batches. ``floor_ms`` is the GPU's own work per step, None if unknown.
    """

    steps_ms: Sequence[float]
    waits_ms: float = 0.0
    loads: bool = False
    floor_ms: float | None = None


def separate_pauses(ns: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the step times without pauses, and the pauses; MIN_PAUSES or more count as steps."""
    pauses = is_pause(ns)
    if pauses.sum() >= MIN_PAUSES:
        return ns, ns[:0]
    return ns[~pauses], ns[pauses]


def is_pause(ns: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which steps contain a pause."""
    return ns > PAUSE_RATIO * np.median(ns) if len(ns) else ns > 0


def whole_bursts(ns: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the steps from the first periodic wait to the last; all steps without such waits.

    A host that reads the loss every tenth step launches nine steps and then waits for all ten. If the counted steps began or
    ended between two waits, they would include launches without their GPU work, or GPU work without its launches.
    """
    waits = longer_than_mean(ns, 1.0)
    if len(waits) <= MIN_PAUSES or ns[waits].mean() < WAIT_RATIO * ns.mean():
        return ns
    complete = ns[waits[0] + 1 : waits[-1] + 1]
    return complete if len(complete) >= len(ns) / 2 else ns


def longer_than_mean(ns: npt.NDArray[np.float64], factor: float) -> npt.NDArray[np.intp]:
    """Return the positions of the steps longer than ``factor`` times their mean."""
    return np.flatnonzero(ns > factor * ns.mean()) if len(ns) else np.empty(0, np.intp)


def round_of(spans: Sequence[StepSpan], counted_ns: npt.NDArray[np.float64]) -> Round | None:
    """Return the rounds of consecutive ``spans``; None if there are none.

    Long steps that are mostly checkpoints or the first steps of epochs are not rounds. ``counted_ns`` are the step times in the
    mean.
    """
    rhythm = find_rounds([span.ns for span in spans])
    if rhythm is None:
        return None
    long = [span for span in spans if span.ns > rhythm.over]
    phases = [span.phase for span in long]
    if max(phases.count("checkpoint"), sum(span.begins_epoch for span in long)) > MAJORITY * len(phases):
        return None
    usual_ns = counted_ns[counted_ns <= rhythm.over]
    step_ms, usual_ms = float(counted_ns.mean()) / 1e6, float(usual_ns.mean()) / 1e6
    return Round(rhythm.steps, step_ms, usual_ms, phases.count("eval") > MAJORITY * len(phases))


def rounds_confirmed_by(by_marks: Round, profiled: ProfileData) -> Round | None:
    """Return the rounds of ``by_marks`` after a check against a profile; None if the profile refutes them.

    * Marked steps may be shorter than their kernels, because the host runs ahead of the GPU and waits for the GPU only
      occasionally. The steps on the device then decide how long a usual step is. If they show no long time before a round,
      there are no rounds.
    * A loader with one worker per step of the round makes the same pattern as rounds. If the profile contains a full round, its
      waits for batches show whether the loader is the reason. Otherwise, a loader is always assumed to be the reason.
    """
    ms = sorted(profiled.steps_ms)
    usual_ms = by_marks.usual_ms
    if profiled.floor_ms is not None and usual_ms < profiled.floor_ms and ms:
        usual_ms = min(by_marks.step_ms * ms[(len(ms) - 1) // 2] * len(ms) / sum(ms), by_marks.step_ms)
    rounds = replace(by_marks, usual_ms=usual_ms, profiled=len(ms) >= by_marks.steps)
    before_ms = rounds.step_ms - rounds.usual_ms
    if before_ms < MIN_LONG_SHARE * rounds.step_ms:
        return None
    loading = profiled.waits_ms >= MAJORITY * before_ms if rounds.profiled else profiled.loads
    return None if loading else rounds
