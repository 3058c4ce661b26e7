"""What a loop does between its training steps, by its own marks: it evaluates, writes a checkpoint, or stands still for a reason that nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sawtooth.analysis.metrics.reading import Reading, worst
from sawtooth.analysis.units import in_times, in_words, significant

Reason = Literal["evaluation", "checkpoint", "unknown"]
REASONS: dict[str, Reason] = {"eval": "evaluation", "checkpoint": "checkpoint"}  # by the phase of the mark that ends a span
EVEN = 1  # steps that distances may differ by: a loop counts from 0 or from 1
DOES: dict[Reason, str] = {"evaluation": "evaluated", "checkpoint": "wrote a checkpoint", "unknown": "stood still"}


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
