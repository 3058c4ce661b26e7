"""The parts of two steps in words: which step can be divided, and what the waterfall shows."""

from __future__ import annotations

from typing import Literal

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison_side import withdrawn_by
from sawtooth.analysis.knowledge.owners import HOST_LOADING, HOST_OPERATORS, HOST_PARTS, OUTSIDE_PROFILE
from sawtooth.app import format as fmt
from sawtooth.app.charts.waterfall import WaterfallBar

# Time in which the GPU has no work; the run's time beyond its profiled steps counts as time without work.
WAITING = ("idle", OUTSIDE_PROFILE)
Step = Literal["run", "profiled"]  # The step that a waterfall divides.


def gpu_worked(comparison: Comparison) -> tuple[bool, bool]:
    """Return for each side whether all its runs have GPU work."""
    return comparison.a.gpu_worked, comparison.b.gpu_worked


def one_ran_on_cpu(comparison: Comparison) -> bool:
    """Return whether one run used a CPU; a profile that lost the GPU's records does not show that."""
    return comparison.cpu_beside_gpu and withdrawn_by(comparison.a, comparison.b) is None


def bars(comparison: Comparison, step: Step) -> list[WaterfallBar]:
    """Return the parts of a waterfall for charts: of the run's step, or of the profiled step."""
    if step == "run":
        return [WaterfallBar(r.owner, r.cause, float(r.ms_a), float(r.ms_b), r.resolved) for r in comparison.waterfall_run]
    return [WaterfallBar(r.owner, r.cause, float(r.ns_a) / 1e6, float(r.ns_b) / 1e6) for r in comparison.waterfall]


def steps_divided(comparison: Comparison) -> tuple[Step, ...]:
    """Return the steps that can be divided on both sides, the run's own first.

    GPU steps are compared only with GPU steps, and host steps only with host steps. The result is empty if the sides ran
    different models, and if a GPU's step time is not known, as in a trace that is cut off.
    """
    worked = gpu_worked(comparison)
    unknown = comparison.best.a is None or comparison.best.b is None
    if worked[0] != worked[1] or comparison.other_model or (worked[0] and unknown):
        return ()
    has: dict[Step, bool] = {"run": not _undivided_sides(comparison), "profiled": bool(comparison.waterfall)}
    return tuple(step for step, rows in has.items() if rows)


def _undivided_sides(comparison: Comparison) -> str:
    """Return A, B or AB: the sides of which only the step's length is known."""
    rows = [row for row in comparison.waterfall_run if row.owner != OUTSIDE_PROFILE]
    return "".join(side for side, ms in (("A", "ms_a"), ("B", "ms_b")) if not any(getattr(row, ms) for row in rows))


def undivided(comparison: Comparison) -> tuple[str, str, str]:
    """Return why no step can be divided, what to do, and the command or code for it."""
    worked = gpu_worked(comparison)
    if (withdrawn := withdrawn_by(comparison.a, comparison.b)) is not None:
        return "A step without the GPU's records cannot be divided.", fmt.clean(withdrawn), "sawtooth run train.py"
    if worked[0] != worked[1]:
        lacks = "A" if worked[1] else "B"
        return (
            f"Side {lacks} has no recorded GPU work, but the other side does. Only what both recorded is compared.",
            f"Record {lacks} with a GPU, or compare it with another run without GPU work.",
            "sawtooth run train.py",
        )
    if not worked[0]:
        lack = _undivided_sides(comparison)
        which = f"The recording of {lack} does not show" if len(lack) == 1 else "Neither recording shows"
        return (
            f"{which} where the time of a step goes.",
            f"Record a profile of {lack if len(lack) == 1 else 'both'} with marked steps. This page then divides both steps.",
            "sawtooth run train.py",
        )
    return (
        "Times per step need steps on both sides.",
        "Call profiler.step() after each training step, on both sides, or put an NVTX range around it under Nsight Systems.",
        "profiler.step()  # after each training step",
    )


def title(parts: list[WaterfallBar], step: Step, *, shown: bool = True) -> str:
    """Return the waterfall's finding: the change, and the largest part in the same direction.

    ``shown`` says whether the change is statistically significant.
    """
    where = "The step changed" if step == "run" else "Under the profiler the step changed"
    change = sum(part.change_ms for part in parts)
    total = fmt.signed(fmt.duration_ms(change), change)
    same_way = [part for part in parts if part.change_ms * change > 0]
    if not same_way:
        return f"{where.removesuffix(' changed')} did not change"
    if step == "run" and not shown:
        return f"The parts of both steps (the steps differ by {total}, but this is uncertain)"
    same_way = [part for part in same_way if part.resolved]
    if not same_way:
        return f"{where} by {total}; it is not clear which part changed"
    largest = max(same_way, key=lambda part: abs(part.change_ms))
    amount = fmt.signed(fmt.duration_ms(largest.change_ms), largest.change_ms)
    return f"{where} by {total}; the largest part is {largest.label}, {amount}"


def method(step: Step, *, host: bool = False) -> str:
    """Return how the waterfall is computed; ``host`` is for runs without GPU work."""
    if host:
        return (
            "Each side's step time comes from its own marks, if it has any. It is divided in the same proportions as its profiled steps: waiting for "
            "batches, inside operators, and the rest. Without a profile, the waiting time is estimated from the loader's time per sample. The changes "
            "of the parts sum exactly to the change of the step."
        )
    if step == "run":
        return (
            "Each side's step time is the best estimate available. A replay of the trace without the profiler's cost divides it among owners "
            "and causes; if the profiled steps are the best estimate, they are divided as recorded. If the run's steps are longer than that, the "
            "rest is shown as time outside the profiled steps. The changes of the parts sum exactly to the change of the step time."
        )
    return (
        "Every nanosecond of each side's steady window has one owner and, where it is lost, one cause. Per step, the changes of the parts sum "
        "exactly to the change of the mean device step of the profiles."
    )


def idle_title(parts: list[WaterfallBar], step: Step) -> str:
    """Return the finding of the two step bars: the idle share of the GPU in both steps.

    For runs without GPU work, it is the share of waiting for batches or of operators.
    """
    owners: tuple[str, ...] = WAITING
    who = "The GPU waits"
    if any(part.owner in HOST_PARTS for part in parts):
        waits = any(part.owner == HOST_LOADING for part in parts)
        owners, who = (
            ((HOST_LOADING,), "The host waits for batches") if waits else ((HOST_OPERATORS,), "Operators on the host take")
        )
    shares = []
    for value in ("ms_a", "ms_b"):
        total = sum(getattr(part, value) for part in parts)
        shares.append(fmt.share(sum(getattr(part, value) for part in parts if part.owner in owners) / total if total else 0.0))
    return f"{who} {shares[0]} of A's {'step' if step == 'run' else 'profiled step'} and {shares[1]} of B's"
