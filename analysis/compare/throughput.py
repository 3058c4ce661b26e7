"""Work per second of two runs whose steps do different work: samples, tokens or operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sawtooth.analysis.compare.reasons import WORK_DIFFERS, counted_flops
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.significance.change_interval import ratio_interval
from sawtooth.analysis.compare.significance.decision import verdict
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps, mean_of_all, scale
from sawtooth.analysis.run.model import RunResult


@dataclass(frozen=True)
class Throughput:
    """Work per second on both sides, in ``unit`` per second.

    ``verdict`` compares the times that A and B need for the work of one step of A. ``interval`` is the 95 % interval of
    ``ratio``, None if it is not known. ``batch`` is B's samples per step divided by A's. The caller sets ``batch`` if
    ``unit`` is FLOP and the shapes of the products show this ratio.
    """

    unit: str
    a: float
    b: float
    verdict: Verdict
    interval: tuple[float, float] | None = None
    batch: Fraction | None = None

    @property
    def ratio(self) -> float:
        """B's work per second divided by A's."""
        return self.b / self.a


_WORK: tuple[tuple[str, Callable[[RunResult], float | None]], ...] = (
    ("samples", lambda run: run.manifest.facts.samples_per_step),
    ("tokens", lambda run: run.manifest.facts.tokens_per_step),
    ("FLOP", counted_flops),
)
# Operators of the forward and backward pass. In a trace without GPU work, the number of their calls shows the passes of a step.
_PASSES = re.compile(r"^aten::(mm|addmm|bmm|baddbmm|convolution|convolution_backward|embedding)$")


def throughput(
    a: Sequence[RunResult],
    b: Sequence[RunResult],
    measured_a: Sequence[MeasuredSteps],
    measured_b: Sequence[MeasuredSteps],
    *,
    one_shape: bool = False,
) -> Throughput | None:
    """Return the work per second of both sides.

    Returns None if their steps do the same work, or if the work or a step time is not known. ``one_shape`` says that
    the products of both sides have the same shapes. Then the batches are equal, and the counts differ only because of
    how operations were counted.
    """
    of_loader = [("samples", _of_loader)] if _same_passes(a[0], b[0]) else []
    for unit, work_of in (*_WORK, *of_loader):
        if unit == "FLOP" and one_shape:
            return None
        works = [mean_of_all([work_of(run) for run in side]) for side in (a, b)]
        steps_ms = [mean_of_all([run.best_ms for run in side]) for side in (measured_a, measured_b)]
        (work_a, work_b), (ms_a, ms_b) = works, steps_ms
        if not work_a or not work_b:
            continue
        if not ms_a or not ms_b or max(work_a, work_b) / min(work_a, work_b) - 1 <= WORK_DIFFERS:
            return None
        b_for_work_of_a = [scale(run, work_a / work_b) for run in measured_b]
        decided = verdict(measured_a, b_for_work_of_a)
        interval = ratio_interval(measured_a, b_for_work_of_a, decided.ci95_ms) if decided.ci95_ms is not None else None
        return Throughput(unit, 1000 * work_a / ms_a, 1000 * work_b / ms_b, decided, interval)
    return None


def _of_loader(run: RunResult) -> float | None:
    return run.manifest.facts.loader_batch


def _same_passes(a: RunResult, b: RunResult) -> bool:
    """Return whether two profiles without GPU work call the same products equally often per step.

    Then a step takes equally many batches on both sides, because more micro-batches would call the products more often.
    """
    calls_a, calls_b = (
        {operator.name: operator.calls for operator in run.host.operators if _PASSES.match(operator.name)}
        if run.lead is None and run.host is not None
        else {}
        for run in (a, b)
    )
    common = calls_a.keys() & calls_b.keys()
    return bool(common) and all(abs(calls_a[name] / calls_b[name] - 1) <= WORK_DIFFERS for name in common)
