"""Reasons not to compare two runs: differences besides the change that the user made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES, StepSource
from sawtooth.analysis.run.model import RankResult, RunResult
from sawtooth.analysis.units import percent

GPU_BESIDE_CPU, STEP_TIME_SOURCE = "gpu_work", "step_time_source"  # The keys of two reasons.
CLOCK_DIFFERS = 0.03  # Boost clocks of one GPU vary by 1 to 2 % with temperature.
# FLOPs follow from shapes: equal work gives exactly equal counts. Sampled steps may differ by an incomplete batch.
WORK_DIFFERS = 0.01
MAX_COUNTED = 0.9  # FLOP coverage. Below it, a side may seem to do less work only because the count is incomplete.
# A difference in any of these changes a step.
OTHER_STEP = frozenset({GPU_BESIDE_CPU, "gpu", "world_size", "torch", "runtime", "work", "shapes"})
MADE_ELSEWHERE = frozenset({"gpu", "world_size", "torch", "runtime"})  # No advice changes these, but step times depend on them.
SHAPES_DIFFER = 0.10  # If a tenth of the operator time is on other shapes, the steps do different work.


@dataclass(frozen=True)
class Reason:
    """One difference between the runs.

    ``what`` is its name if it has one. ``a`` and ``b`` are the values of the sides, in words.
    """

    key: str
    sentence: str
    a: str
    b: str
    what: str = ""


@dataclass(frozen=True)
class _Check:
    key: str
    what: str
    consequence: str
    value: Callable[[RunResult, RankResult], Any]
    named: Callable[[Any], str] = str


def _on_or_off(flag: bool | None) -> str:
    return "on" if flag else "off"


def _source_name(source: StepSource) -> str:
    return STEP_SOURCES[source].name


_HOST_COST = "recording it slows the host, which alone makes profiled steps differ"
_CHECKS = (
    _Check("gpu", "GPU", "times on different GPUs cannot show the effect of the change", lambda _, rank: rank.device_name),
    _Check("world_size", "World size", "the ranks share the work differently", lambda _, rank: rank.trace.world_size),
    _Check("ranks", "Ranks recorded", "the slowest recorded rank may be another one", lambda run, _: len(run.ranks)),
    _Check("torch", "PyTorch version", "its kernels and host cost differ", lambda _, rank: rank.trace.torch_version),
    _Check("runtime", "CUDA or HIP runtime", "libraries choose other kernels", lambda _, rank: rank.trace.runtime_version),
    _Check("record_shapes", "record_shapes", _HOST_COST, lambda _, rank: _on_or_off(rank.trace.record_shapes)),
    _Check("profile_memory", "profile_memory", _HOST_COST, lambda _, rank: _on_or_off(rank.trace.profile_memory)),
    _Check("with_stack", "with_stack", _HOST_COST, lambda _, rank: _on_or_off(rank.trace.with_stack)),
    _Check("with_modules", "with_modules", _HOST_COST, lambda _, rank: _on_or_off(rank.trace.with_modules)),
    _Check("step_source", "Source of the steps", "the two sides may mean different things by a step", lambda _, rank: rank.step_source),
    _Check(STEP_TIME_SOURCE, "Source of the step time", "this alone can make a difference of 10 % or more", lambda _, r: r.best.source, _source_name),
)  # fmt: skip


def reasons(a: RunResult, b: RunResult, operators: list[Match], *, one_shape: bool = False) -> list[Reason]:
    """Return what differs between the runs besides their times; empty if no difference is known.

    ``one_shape`` says that the products of both runs have the same shapes. Then a step does the same work, even if the
    counted operations differ.
    """
    if (a.lead is None) != (b.lead is None):
        return _gpu_beside_cpu(a, b)
    if a.lead is None or b.lead is None:
        return []
    differences = []
    for check in _CHECKS:
        value_a, value_b = check.value(a, a.lead), check.value(b, b.lead)
        if value_a is not None and value_b is not None and value_a != value_b:
            sentence = f"{check.what} differs ({check.named(value_a)} against {check.named(value_b)}): {check.consequence}."
            differences.append(Reason(check.key, sentence, str(value_a), str(value_b), check.what))
    works = (counted_flops(a), counted_flops(b))
    work = [] if one_shape else [*_work(*works), *([] if _same_or_uncounted(a, b, works) else _shapes(operators))]
    return [*differences, *_clock(a, b), *work]


def _gpu_beside_cpu(a: RunResult, b: RunResult) -> list[Reason]:
    """Return the reason that only one side has GPU work; empty if the other side has no profile."""
    worked = [f"work on {run.lead.device_name or 'a GPU'}" if run.lead is not None else "no GPU work" for run in (a, b)]
    if not (a if a.lead is None else b).manifest.traces:
        return []
    sentence = f"A's profile has {worked[0]} and B's has {worked[1]}, so their steps do not show the effect of a change to the training."
    return [Reason(GPU_BESIDE_CPU, sentence, *worked)]


def counted_flops(run: RunResult) -> float | None:
    """Return the FLOPs of a step; None if they are not known.

    None also if the shapes of too much work are missing, because the sum is then only a lower bound.
    """
    coverage = _value(run, "flop_coverage")
    partly = coverage is not None and coverage < MAX_COUNTED
    return None if partly and run.manifest.facts.flops_per_step is None else _value(run, "flops_per_step")


def work_ratio(a: RunResult, b: RunResult) -> float | None:
    """Return B's floating-point operations per step divided by A's.

    None if they are not counted on both sides.
    """
    flops_a, flops_b = counted_flops(a), counted_flops(b)
    return flops_b / flops_a if flops_a and flops_b else None


def _same_or_uncounted(a: RunResult, b: RunResult, works: tuple[float | None, float | None]) -> bool:
    """Return whether the steps may do the same work in spite of different shapes.

    They may if both sides count equally many operations, or if one side's count is incomplete.
    """
    work_a, work_b = works
    if work_a and work_b:
        return max(work_a, work_b) / min(work_a, work_b) - 1 <= WORK_DIFFERS
    return any(work is None and _value(run, "flops_per_step") is not None for run, work in zip((a, b), works, strict=True))


def _value(run: RunResult, key: str) -> float | None:
    return run.metrics[key].value


def _clock(a: RunResult, b: RunResult) -> list[Reason]:
    measured = all(run.metrics["mfu_factor_clock"].trust == "ok" for run in (a, b))  # Otherwise the rated clock was assumed.
    clock_a, clock_b = _value(a, "mfu_factor_clock"), _value(b, "mfu_factor_clock")
    if (
        not measured
        or clock_a is None
        or clock_b is None
        or not min(clock_a, clock_b)
        or max(clock_a, clock_b) / min(clock_a, clock_b) - 1 <= CLOCK_DIFFERS
    ):
        return []
    words = (f"{percent(clock_a)} of the rated clock", f"{percent(clock_b)} of the rated clock")
    slower, longer = ("A", clock_b / clock_a - 1) if clock_a < clock_b else ("B", clock_a / clock_b - 1)
    sentence = (
        f"The GPU ran at {words[0]} in A and {words[1]} in B (a boosting GPU exceeds it). "
        f"For this reason alone, kernels may take up to {percent(longer)} longer in {slower}."
    )
    return [Reason("clock", sentence, *words)]


def _tflop(flops: float) -> str:
    return f"{flops / 1e12:,.0f} TFLOP" if flops >= 1e15 else f"{flops / 1e12:.4g} TFLOP"


def _work(flops_a: float | None, flops_b: float | None) -> list[Reason]:
    if not flops_a or not flops_b or max(flops_a, flops_b) / min(flops_a, flops_b) - 1 <= WORK_DIFFERS:
        return []
    words = (_tflop(flops_a), _tflop(flops_b))
    sentence = f"A step does {words[0]} in A and {words[1]} in B. Compare throughput, unless you changed the work on purpose."
    return [Reason("work", sentence, *words)]


def _shapes(operators: list[Match]) -> list[Reason]:
    changed = [row for row in operators if row.how == "operator" and row.ns_a and row.ns_b]
    total = sum(row.ns_a + row.ns_b for row in operators)
    share = float(sum(row.ns_a + row.ns_b for row in changed) / total) if total else 0.0
    if share <= SHAPES_DIFFER:
        return []
    largest = max(changed, key=lambda row: row.ns_a + row.ns_b)
    sentence = f"{percent(share)} of operator time is spent on other shapes (most of it in {largest.label}), so the steps do other work."
    return [Reason("shapes", sentence, "its own shapes", "its own shapes")]
