"""The basis of a comparison in words: the source of each side's step time, and the profiled steps."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons.comparison import about

MAX_DISTANCE = 0.05  # Relative distance of the run's step time from the profiled steps. Above it, the text gives both.


def bases(comparison: Comparison) -> tuple[str, str]:
    """Return the basis of each side.

    An example is "A: step time from the run's own step marks, 30 profiled steps".
    """
    a, b = (
        f"{name}: " + ", ".join(filter(None, (_sources_of(side, sources), _profiled_steps(side), _workers(side))))
        for name, side, sources in zip("AB", (comparison.a, comparison.b), comparison.sources, strict=True)
    )
    return a, b


def _sources_of(side: Side, sources: Sequence[StepSource]) -> str:
    mean = f"the mean of {len(side.runs)} runs, " if len(side.runs) > 1 else ""
    return f"step time from {mean}{' and '.join(STEP_SOURCES[source].name for source in sources)}"


def _profiled_steps(side: Side) -> str:
    count = sum(len(measured.steps_ms) for measured in side.measured)
    return fmt.many(count, "profiled step") if count else "no profiled steps"


def _workers(side: Side) -> str:
    workers = {run.manifest.facts.loader_workers for run in side.runs}
    count = workers.pop() if len(workers) == 1 else None
    return fmt.many(int(count), "loader worker") if count is not None else ""


def dots_title(comparison: Comparison) -> str:
    """Return the title of the step dots: ranges of profiled steps, and the run's distant step times."""
    a, b = steps(comparison)
    if not a or not b:
        return "One side has no counted steps"
    sides = (
        ("A", a, comparison.best.a, comparison.a, comparison.sources[0]),
        ("B", b, comparison.best.b, comparison.b, comparison.sources[1]),
    )
    ranges = ", ".join(f"{fmt.span_ms(min(steps_ms), max(steps_ms))} in {name}" for name, steps_ms, *_ in sides)
    distant = [
        f"{about(side, sources)}{fmt.duration_ms(ms)} in {name}"
        for name, steps_ms, ms, side, sources in sides
        if ms is not None and not min(steps_ms) * (1 - MAX_DISTANCE) <= ms <= max(steps_ms) * (1 + MAX_DISTANCE)
    ]
    run_steps = f"; the run's steps take {' and '.join(distant)}" if distant else ""
    if max(b) < min(a):
        conclusion = "every step of B is shorter than any of A"
    elif max(a) < min(b):
        conclusion = "every step of A is shorter than any of B"
    else:
        conclusion = "they overlap, so they show little by themselves"
    return f"Profiled steps: {ranges}; {conclusion}{run_steps}"


def steps(comparison: Comparison) -> tuple[list[float], list[float]]:
    """Return the profiled device steps of A and of B in ms.

    Steps that the end of a trace cuts off have no length and are left out.
    """
    a, b = ([ms for ms in side.device_step_ms if ms > 0] for side in (comparison.a, comparison.b))
    return a, b
