"""The parts of two steps in words: which step can be divided, and what the waterfall shows."""

from __future__ import annotations

from typing import Literal

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison_side import withdrawn_by
from sawtooth.analysis.knowledge.owners import HOST_LOADING, HOST_OPERATORS, HOST_PARTS, OUTSIDE_PROFILE
from sawtooth.app import format as fmt
from sawtooth.app.charts.waterfall import WaterfallBar

WAITING = ("idle", OUTSIDE_PROFILE)  # Owners of time without GPU work. Time outside the profiled steps counts as such.
Step = Literal["run", "profiled"]  # The step that a waterfall divides.


def gpu_worked(comparison: Comparison) -> tuple[bool, bool]:
    """Return for each side whether all its runs have GPU work."""
    return comparison.a.gpu_worked, comparison.b.gpu_worked


def one_ran_on_cpu(comparison: Comparison) -> bool:
    """Return whether only one run used a GPU.

    It is unknown, and therefore False, if a profile lost the GPU's records.
    """
    return comparison.cpu_beside_gpu and withdrawn_by(comparison.a, comparison.b) is None


def bars(comparison: Comparison, step: Step) -> list[WaterfallBar]:
    """Return the parts of the run's step or of the profiled step, for charts."""
    if step == "run":
        return [WaterfallBar(r.owner, r.cause, float(r.ms_a), float(r.ms_b), r.resolved) for r in comparison.waterfall_run]
    return [WaterfallBar(r.owner, r.cause, float(r.ns_a) / 1e6, float(r.ns_b) / 1e6) for r in comparison.waterfall]


def steps_divided(comparison: Comparison) -> tuple[Step, ...]:
    """Return the steps that can be divided on both sides, the run's own first.

    A GPU step is compared only with a GPU step, and a host step only with a host step. The result is empty for different models,
    and if the step time of a run with GPU work is not known, as in a trace that is cut off.
    """
    worked_a, worked_b = gpu_worked(comparison)
    is_unknown = comparison.best.a is None or comparison.best.b is None
    if worked_a != worked_b or comparison.other_model or (worked_a and is_unknown):
        return ()
    is_divided: dict[Step, bool] = {"run": not _undivided_sides(comparison), "profiled": bool(comparison.waterfall)}
    return tuple(step for step, divided in is_divided.items() if divided)


def _undivided_sides(comparison: Comparison) -> str:
    """Return A, B or AB: the sides whose step has no known parts; "" if both sides have parts."""
    rows = [row for row in comparison.waterfall_run if row.owner != OUTSIDE_PROFILE]
    return "".join(side for side, ms in (("A", "ms_a"), ("B", "ms_b")) if not any(getattr(row, ms) for row in rows))


def undivided(comparison: Comparison) -> tuple[str, str, str]:
    """Return why no step can be divided, what to do, and the command or code for it."""
    worked_a, worked_b = gpu_worked(comparison)
    runs = (*comparison.a.runs, *comparison.b.runs)
    if failed := [(run.manifest.name, check) for run in runs if (check := run.withdrawn_by) is not None]:
        name, check = failed[0]
        return f"{fmt.clean(name, 40)} does not show the parts of a step", fmt.clean(f"{check.sentence} {check.advice}"), ""
    if worked_a != worked_b:
        side = "A" if worked_b else "B"
        return (
            f"Side {side} has no recorded GPU work, but the other side does. Only what both recorded is compared.",
            f"Record {side} with a GPU, or compare it with another run without GPU work.",
            "sawtooth run train.py",
        )
    if not worked_a:
        side = _undivided_sides(comparison)
        subject = f"The recording of {side} does not show" if len(side) == 1 else "Neither recording shows"
        return (
            f"{subject} where the time of a step goes.",
            f"Record a profile of {side if len(side) == 1 else 'both'} with marked steps. This page then divides both steps.",
            "sawtooth run train.py",
        )
    return (
        "Times per step need steps on both sides.",
        "Call profiler.step() after each training step, on both sides, or put an NVTX range around it under Nsight Systems.",
        "profiler.step()  # after each training step",
    )


def title(parts: list[WaterfallBar], step: Step, *, shown: bool = True) -> str:
    """Return the title of the waterfall: the change, and the largest part that changed in its direction.

    ``shown`` says whether the change is statistically significant.
    """
    subject = "The step" if step == "run" else "Under the profiler the step"
    change = sum(part.change_ms for part in parts)
    total = fmt.signed(fmt.duration_ms(change), change)
    changed = [part for part in parts if part.change_ms * change > 0]
    if not changed:
        return f"{subject} did not change"
    if step == "run" and not shown:
        return f"The parts of both steps (the steps differ by {total}, but this is uncertain)"
    certain = [part for part in changed if part.resolved]
    if not certain:
        return f"{subject} changed by {total}; it is not clear which part changed"
    largest = max(certain, key=lambda part: abs(part.change_ms))
    amount = fmt.signed(fmt.duration_ms(largest.change_ms), largest.change_ms)
    return f"{subject} changed by {total}; the largest part is {largest.label}, {amount}"


def method(step: Step, *, host: bool = False) -> str:
    """Return how the waterfall is computed; ``host`` is for runs without GPU work."""
    if host:
        return (
            "The step time of each side comes from its step marks, if it has any. It is divided into waiting for batches, operators and the rest, in "
            "the proportions of the profiled steps. Without a profile, the waiting time is estimated from the loader's time per sample. The changes "
            "of the parts sum exactly to the change of the step."
        )
    if step == "run":
        return (
            "The step time of each side is the best available estimate. A replay of the trace without the profiler's cost divides it among owners "
            "and causes. Profiled steps are divided as recorded if they are the best estimate. The rest of longer steps of the run is shown as "
            "time outside the profiled steps. The changes of the parts sum exactly to the change of the step time."
        )
    return (
        "Every nanosecond of each side's steady window has one owner. A lost nanosecond also has one cause. Per step, the changes of the parts "
        "sum exactly to the change of the mean device step of the profiles."
    )


def idle_title(parts: list[WaterfallBar], step: Step) -> str:
    """Return the title of the two step bars: the GPU's idle share of both steps.

    Runs without GPU work have the share of waiting for batches or of operators.
    """
    owners: tuple[str, ...] = WAITING
    subject = "The GPU waits"
    if any(part.owner in HOST_PARTS for part in parts):
        owners, subject = (HOST_OPERATORS,), "Operators on the host take"
        if any(part.owner == HOST_LOADING for part in parts):
            owners, subject = (HOST_LOADING,), "The host waits for batches"
    shares = []
    for side in ("ms_a", "ms_b"):
        total_ms = sum(getattr(part, side) for part in parts)
        owned_ms = sum(getattr(part, side) for part in parts if part.owner in owners)
        shares.append(fmt.share(owned_ms / total_ms if total_ms else 0.0))
    return f"{subject} {shares[0]} of A's {'step' if step == 'run' else 'profiled step'} and {shares[1]} of B's"
