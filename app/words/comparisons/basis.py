"""The basis of a comparison in words: the source of each side's step time, and the profiled steps."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons.comparison import about

FAR = 0.05  # Relative distance from the profiled steps: above it, the text gives the run's step time.


def bases(comparison: Comparison) -> tuple[str, str]:
    """Return the basis of each side.

    An example is "A: step time from the run's own step marks, 30 profiled steps, 8 loader workers".
    """
    a, b = (
        f"{name}: " + ", ".join(filter(None, (_sources_of(side, sources), _profiled_steps(side), _workers(side))))
        for name, side, sources in zip("AB", (comparison.a, comparison.b), comparison.sources, strict=True)
    )
    return a, b


def _sources_of(side: Side, sources: Sequence[StepSource]) -> str:
    times = f"the mean of {len(side.runs)} runs, " if len(side.runs) > 1 else ""
    return f"step time from {times}{' and '.join(STEP_SOURCES[source].name for source in sources)}"


def _profiled_steps(side: Side) -> str:
    count = sum(len(measured.steps_ms) for measured in side.measured)
    return fmt.many(count, "profiled step") if count else "no profiled steps"


def _workers(side: Side) -> str:
    workers = {run.manifest.facts.loader_workers for run in side.runs}
    count = workers.pop() if len(workers) == 1 else None
    return fmt.many(int(count), "loader worker") if count is not None else ""


def dots_title(comparison: Comparison) -> str:
    """Return the finding of the step dots: the ranges of both sides.

    It also gives the run's step time if that lies outside the range of its side.
    """
    a, b = steps(comparison)
    if not a or not b:
        return "One side has no counted steps"
    apart = max(a) < min(b) or max(b) < min(a)
    sides = (
        ("A", a, comparison.best.a, comparison.a, comparison.sources[0]),
        ("B", b, comparison.best.b, comparison.b, comparison.sources[1]),
    )
    ranges = ", ".join(f"{fmt.span_ms(min(each), max(each))} in {name}" for name, each, *_ in sides)
    own = [
        f"{about(side, sources)}{fmt.duration_ms(ms)} in {name}"
        for name, each, ms, side, sources in sides
        if ms is not None and not min(each) * (1 - FAR) <= ms <= max(each) * (1 + FAR)
    ]
    runs = f"; the run's steps take {' and '.join(own)}" if own else ""
    faster, slower = ("B", "A") if max(b) < min(a) else ("A", "B")
    means = (
        f"every step of {faster} is shorter than any of {slower}"
        if apart
        else "they overlap, so they show little by themselves"
    )
    return f"Profiled steps: {ranges}; {means}{runs}"


def steps(comparison: Comparison) -> tuple[list[float], list[float]]:
    """Return both sides' profiled device steps in ms."""
    a, b = ([ms for ms in side.device_step_ms if ms > 0] for side in (comparison.a, comparison.b))
    return a, b  # a step that is cut off by the end of a trace has no length
