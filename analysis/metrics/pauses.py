"""What a loop does between its training steps, by its own marks: it evaluates, writes a checkpoint, or stands still for a reason that nobody knows.

Where something long comes before every few steps, evenly, it goes in rounds, as reinforcement learning does: those are told by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.reading import Reading, worst
from sawtooth.analysis.units import in_times, in_words, significant
from sawtooth.ingest.loop.rounds import LEAST_SHARE, rhythm_of

Reason = Literal["evaluation", "checkpoint", "unknown"]
REASONS: dict[str, Reason] = {"eval": "evaluation", "checkpoint": "checkpoint"}  # by the phase of the mark that ends a span
EVEN = 1  # steps that distances may differ by: a loop counts from 0 or from 1
DOES: dict[Reason, str] = {"evaluation": "evaluated", "checkpoint": "wrote a checkpoint", "unknown": "stood still"}
MOSTLY = 0.5  # of the rounds' first steps, or of what comes before them


@dataclass(frozen=True)
class Pauses:
    """The pauses of one ``reason``: the steps before which they come, how long each is (ms, the step taken off), among how many steps, and whether the
    step time holds them."""

    reason: Reason
    steps: tuple[int, ...]
    ms: tuple[float, ...]
    among: int
    in_step: bool

    @property
    def period(self) -> float | None:
        """Every how many steps one comes, where they are equally far apart: two of them from the loop's first step too; None where they are not."""
        apart = np.diff(self.steps)
        if not len(apart) or np.ptp(apart) > EVEN or apart.min() <= 0:  # a script's own marks may count anew each epoch
            return None
        every = float(apart.mean())
        off = self.steps[0] % every
        return every if len(apart) > 1 or min(off, every - off) <= EVEN else None

    @property
    def every(self) -> float:
        """One in how many steps: by their period where their reason is known, else as often as they were seen."""
        return (self.period if self.reason != "unknown" else None) or self.among / len(self.steps)

    @property
    def mean_ms(self) -> float:
        """How long one is on average."""
        return float(np.mean(self.ms))

    @property
    def ms_per_step(self) -> float:
        """What they take on average."""
        return self.mean_ms / self.every

    @property
    def often(self) -> str:
        """How often they come, in words: every 60 steps; 2 times in 290 steps."""
        if self.reason != "unknown" and self.period is not None:
            return f"every {self.every:,.0f} steps"
        return f"{in_times(len(self.steps))} in {self.among:,} steps"

    @property
    def long(self) -> str:
        """How long they are, in words: 1.3 s to 1.5 s."""
        least, most = (in_words(ms, 2) for ms in (min(self.ms), max(self.ms)))
        return least if least == most else f"{least} to {most}"

    def share(self, step_ms: float) -> float:
        """Return their share of the run's time, in which a step takes ``step_ms``."""
        return self.ms_per_step / (step_ms if self.in_step else step_ms + self.ms_per_step)

    def left_out(self, step_ms: float) -> str:
        """Say that they are no part of the step time ``step_ms``, and what it would be with them."""
        each = " each" if len(self.ms) > 1 else ""
        return (
            f"Between its steps it {DOES[self.reason]} {in_times(len(self.ms))}, {self.long}{each}: no part of the step time. "
            f"They take {significant(100 * self.share(step_ms), 2)} % of the time; with them a step takes {in_words(step_ms + self.ms_per_step)} on average."
        )


class Span(NamedTuple):
    """The time from the mark before to that of ``step``, and what the loop did within it, as the mark's ``phase`` has it."""

    step: int
    ns: int
    phase: str


def seldom(spans: Sequence[Span], steps_apart: int) -> frozenset[str]:
    """Return the phases whose spans are told apart; what comes more often than every ``steps_apart`` steps is the loop's own."""
    return frozenset(phase for phase in REASONS if 0 < steps_apart * sum(span.phase == phase for span in spans) <= len(spans))


def stretches(spans: Sequence[Span], apart: frozenset[str]) -> list[npt.NDArray[np.float64]]:
    """Return the steps' times, of one stretch, or of those between spans of the phases ``apart``: the host's queue fills anew in each."""
    ns = np.array([span.ns for span in spans], np.float64)
    at = [index for index, span in enumerate(spans) if span.phase in apart]
    return [ns[start + 1 : end] for start, end in pairwise([-1, *at, len(ns)])]


def pauses_of(
    spans: Sequence[Span], kept_ns: npt.NDArray[np.float64], left_out_ns: npt.NDArray[np.float64]
) -> tuple[Pauses, ...]:
    """Return what the loop does between its steps, by reason. ``kept_ns`` are the times that make the step time, ``left_out_ns`` those of pauses that do not.

    A span is known by its time, which is one of nanoseconds.
    """
    steps_ns = kept_ns[~np.isin(kept_ns, [span.ns for span in spans if span.phase in REASONS])]
    if not len(steps_ns):
        return ()
    left_out = set(left_out_ns.tolist())
    usual = float(steps_ns.mean())
    by_reason: dict[Reason, list[Span]] = {}
    for span in spans:
        if span.phase in REASONS or span.ns in left_out:
            by_reason.setdefault(REASONS.get(span.phase, "unknown"), []).append(span)
    return tuple(
        Pauses(
            reason,
            tuple(span.step for span in its),
            tuple(max(span.ns - usual, 0.0) / 1e6 for span in its),
            len(spans),
            in_step=bool(np.isin([span.ns for span in its], kept_ns).any()),
        )
        for reason, its in by_reason.items()
    )


def with_doubt(step: Reading, pauses: Sequence[Pauses]) -> Reading:
    """Return a step time with caution where pauses that are no part of it make whoever times the run find more than its interval holds.

    Who times a training leaves its evaluations out.
    """
    apart = sum(its.ms_per_step for its in pauses if not its.in_step and its.reason != "evaluation")
    if step.value is None or step.high is None or step.value + apart <= step.high:
        return step
    return replace(step, trust=worst(step.trust, "caution"))


@dataclass(frozen=True)
class Round:
    """A round of ``steps`` steps, of which each takes ``step_ms`` on average with what comes before the first, and ``usual_ms`` without it.

    ``evaluates``: the model is set to evaluate there. ``profiled``: the profile holds a whole one.
    """

    steps: int
    step_ms: float
    usual_ms: float
    evaluates: bool = False
    profiled: bool = False

    @property
    def between_ms(self) -> float:
        """What comes before the first step of a round takes so long."""
        return self.steps * (self.step_ms - self.usual_ms)

    @property
    def sentence(self) -> str:
        """What a round takes: A round of 8 steps takes 49.4 ms: 24.1 ms in its steps and 25.3 ms before the first (a rollout, say)."""
        of_steps, before = in_words(self.steps * self.usual_ms), in_words(self.between_ms)
        such = "a rollout or an evaluation" if self.evaluates else "a rollout, say"
        return f"A round of {self.steps} steps takes {in_words(self.steps * self.step_ms)}: {of_steps} in its steps and {before} before the first ({such})."


@dataclass(frozen=True)
class Profiled:
    """What a profile tells of rounds: its counted steps, how long each waits for batches on average, whether anything ``loads`` them, and how long the
    GPU's own work of one keeps it, all ms; ``floor_ms`` is None where that is not known."""

    steps_ms: Sequence[float]
    waits_ms: float = 0.0
    loads: bool = False
    floor_ms: float | None = None


def round_of(spans: Sequence[Span], kept_ns: npt.NDArray[np.float64]) -> Round | None:
    """Return the rounds of consecutive ``spans``; ``kept_ns`` are the times that make the step time. None where the loop goes in none, or writes a checkpoint before each."""
    rhythm = rhythm_of([span.ns for span in spans])
    if rhythm is None:
        return None
    phases = [span.phase for span in spans if span.ns > rhythm.over]
    if phases.count("checkpoint") > MOSTLY * len(phases):
        return None
    usual_ns = kept_ns[kept_ns <= rhythm.over]
    step_ms, usual_ms = float(kept_ns.mean()) / 1e6, float(usual_ns.mean()) / 1e6
    return Round(rhythm.steps, step_ms, usual_ms, phases.count("eval") > MOSTLY * len(phases))


def rounds_beside(by_marks: Round, profiled: Profiled) -> Round | None:
    """Return the rounds that ``by_marks`` shows as far as they can be told beside a profile; None where the host waits there for the GPU or for batches.

    Where steps are shorter than their kernels, the host runs ahead of the GPU and waits for it now and then: then its marks do not tell what takes long, the
    device's steps do. A loader of so many workers makes the same rhythm: it is told by the waits of profiled rounds, else wherever batches are loaded.
    """
    ms = sorted(profiled.steps_ms)
    usual_ms = by_marks.usual_ms
    if profiled.floor_ms is not None and usual_ms < profiled.floor_ms and ms:
        usual_ms = min(by_marks.step_ms * ms[(len(ms) - 1) // 2] * len(ms) / sum(ms), by_marks.step_ms)
    known = replace(by_marks, usual_ms=usual_ms, profiled=len(ms) >= by_marks.steps)
    before_ms = known.step_ms - known.usual_ms
    if before_ms < LEAST_SHARE * known.step_ms:
        return None
    loading = profiled.waits_ms >= MOSTLY * before_ms if known.profiled else profiled.loads
    return None if loading else known
