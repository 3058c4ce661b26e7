"""Split a loop's mean step into waits for batches, rare work and the rest, from its step marks.

Standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

LONG_STEP_RATIO = 3.0  # A step whose work takes more than this many times the median has work that usual steps lack.
MIN_SHARE = 0.05  # Work below this share of the loop's time is ignored, because it may be other load on the host.
STALL = "stall"  # The kind of work of rare steps in which one rank of a job stalls.
WORK = {"eval": "evaluation", "checkpoint": "checkpoint"}  # The kind of work, by the phase of the mark that ends a step.


class StepSpan(NamedTuple):
    """The time from the previous mark to the mark of ``step``, with the loop's activity (``phase``).

    ``LoaderWaits`` counts the waits. ``wait_ns`` is None if the step did not wait for a DataLoader.
    """

    step: int
    ns: int
    phase: str
    wait_ns: int | None = None
    first_ns: int = 0
    start_ns: int = 0

    @property
    def work_ns(self) -> int:
        """The time without waiting for batches."""
        return self.ns - min(self.wait_ns or 0, self.ns)

    @property
    def begins_epoch(self) -> bool:
        """Whether waiting for an epoch's first batch takes most of the time."""
        return 2 * self.first_ns >= self.ns


def with_first_waits(spans: Sequence[StepSpan], separate_phases: Collection[str]) -> list[StepSpan]:
    """Return the steps, with waits for epochs' first batches moved from separate phases to steps.

    An evaluation between two epochs is not part of a step, but the wait for the next epoch's first batch is part of a step.
    """
    moved = [*spans]
    for index, span in enumerate(spans[:-1]):
        following = moved[index + 1]
        first_ns = min(span.first_ns, span.ns)
        if span.phase in separate_phases and first_ns and following.phase not in separate_phases:
            moved[index] = StepSpan(span.step, span.ns - first_ns, span.phase)
            waited_ns = (following.wait_ns or 0) + first_ns
            moved[index + 1] = following._replace(
                ns=following.ns + first_ns,
                wait_ns=waited_ns,
                first_ns=following.first_ns + first_ns,
                start_ns=following.start_ns + min(span.start_ns, first_ns),
            )
    return moved


@dataclass(frozen=True)
class StepParts:
    """Parts of the mean step, in ms.

    ``waiting_ms``: wait for batches, None if no step waited for a DataLoader.
    ``first_ms``: extra wait for the first batches of ``epochs``, compared with other batches.
    ``starting_ms``: time to make iterators and start workers.
    ``epochs``: number of epochs that begin in these steps.
    ``epoch_steps``: steps per epoch (median), or all steps if fewer than two epochs begin.
    ``persistent_workers``: whether at least half of the epochs use the previous epoch's iterator.
    ``apart_ms``: extra time of evaluations, checkpoints and unknown work in some steps, compared with usual steps, by kind.
    ``profiled_start_ms``: time to make iterators, in the mean profiled step.
    ``profiled_apart_ms``: extra time of unusual work, in the mean profiled step.
    """

    waiting_ms: float | None
    first_ms: float
    starting_ms: float
    epochs: int
    epoch_steps: float
    persistent_workers: bool = False
    apart_ms: tuple[tuple[str, float], ...] = ()
    profiled_start_ms: float = 0.0
    profiled_apart_ms: float = 0.0

    @property
    def unprofiled_ms(self) -> float:
        """The ms of the mean step that the profiled steps do not show, without usual waits."""
        return self.all_apart_ms + (0.0 if self.profiled_start_ms else self.first_ms)

    @property
    def stalls_ms(self) -> float:
        """The ms of the mean step for rare stalls of one rank."""
        return sum(ms for kind, ms in self.apart_ms if kind == STALL)

    @property
    def all_apart_ms(self) -> float:
        """The ms of the mean step for all kinds of work that only some steps contain."""
        return sum(ms for _, ms in self.apart_ms)


def step_parts(steps: Sequence[StepSpan], profiled: Sequence[StepSpan], *, cpu_only: bool) -> StepParts | None:
    """Return the parts of the mean of ``steps``; None without steps.

    ``apart_ms`` is empty if ``profiled`` steps contain unusual work, because the profile shows this work.
    Without ``cpu_only``, the host runs ahead of a GPU. A first wait then counts only as far as it makes the step longer. Unknown work is
    not counted, because a long step may wait for the GPU.
    """
    if not steps:
        return None
    count = 1e6 * len(steps)
    timed = any(step.wait_ns is not None for step in steps)
    firsts = [step for step in steps if step.first_ns]
    usual_wait_ns = fmean([step.wait_ns or 0 for step in steps if not step.first_ns] or [0])
    hidden_ns = 0.0 if cpu_only else median(step.ns for step in steps) - usual_wait_ns
    profiled_apart_ms = sum(ms for _, ms in _apart_ms(profiled))
    parts = () if profiled_apart_ms else _apart_ms(steps)
    return StepParts(
        waiting_ms=sum(min(step.wait_ns or 0, step.ns) for step in steps) / count if timed else None,
        first_ms=sum(max(min(step.first_ns, step.ns - hidden_ns) - usual_wait_ns, 0.0) for step in firsts) / count,
        starting_ms=sum(min(step.start_ns, step.ns) for step in firsts) / count,
        epochs=len(firsts),
        epoch_steps=median(_epoch_lengths(firsts) or [len(steps)]),
        persistent_workers=2 * sum(step.start_ns > 0 for step in firsts) <= len(firsts),
        apart_ms=tuple((kind, ms) for kind, ms in parts if cpu_only or kind in WORK.values()),
        profiled_start_ms=sum(step.start_ns for step in profiled) / (1e6 * max(len(profiled), 1)),
        profiled_apart_ms=profiled_apart_ms,
    )


def _epoch_lengths(firsts: Sequence[StepSpan]) -> list[int]:
    """Return the numbers of steps between the first steps of epochs."""
    lengths = [following.step - first.step for first, following in pairwise(firsts)]
    return [length for length in lengths if length > 0]


def _apart_ms(steps: Sequence[StepSpan]) -> tuple[tuple[str, float], ...]:
    """Return the kinds of work that only some steps contain, with their ms per step, largest first."""
    if not steps:
        return ()
    longest_ns = LONG_STEP_RATIO * median(step.work_ns for step in steps)
    kinds = ["usual" if step.work_ns <= longest_ns else WORK.get(step.phase, "unknown") for step in steps]
    usual_ns = fmean(step.work_ns for step, kind in zip(steps, kinds, strict=True) if kind == "usual")
    apart_ns: dict[str, float] = defaultdict(float)
    for step, kind in zip(steps, kinds, strict=True):
        apart_ns[kind] += step.work_ns - usual_ns
    min_ns = MIN_SHARE * sum(step.ns for step in steps)
    reported_ns = {kind: ns for kind, ns in apart_ns.items() if kind != "usual" and ns >= min_ns}
    return tuple((kind, ns / 1e6 / len(steps)) for kind, ns in sorted(reported_ns.items(), key=lambda item: -item[1]))
