"""Tests of launches that are lost with their kernels: the same operator in other steps shows them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.app.words.headline import headline
from tests.incomplete.claims import analysed
from tests.support.chrome_trace import ChromeTrace, matmul_loop

LOST = "Launches and their kernels are missing. Record again with fewer steps."


def result_of(trace: ChromeTrace, lost: Callable[[int], bool] = lambda k: False) -> RunResult:
    """Analyse a trace without the launches, numbered from 1, that ``lost`` chooses, or their kernels."""
    trace.events = [e for e in trace.events if not lost(e["args"].get("correlation", 0))]
    result = analysed([("t.json", trace.json())])
    assert result is not None
    return result


def nth(*chosen: int) -> Callable[[int], bool]:
    """Choose launches of ``matmul_loop`` by number: step k has the launches 2k and 2k + 1."""
    return lambda correlation: correlation - 101 in chosen


def test_steps_with_lost_launches_are_not_counted() -> None:
    result = result_of(matmul_loop(10), nth(8, 9, 11, 13))  # All operators of step 4, one of step 5 and one of step 6.
    (check,) = result.failed
    assert check.sentence.startswith("3 of 10 steps lack records of the GPU for 4 launches.")
    assert result.metrics["gpu_busy_share"].value == pytest.approx(0.7, abs=0.01)  # (600 + 100) of 1,000 µs
    assert result.metrics["kernel_launches_per_step"].value == 2


@pytest.mark.parametrize(
    "lost",
    [
        (0, 3, 4, 7, 8),  # Each of the five steps lacks one of its two operators.
        (2, 3, 6, 7),  # Every second step is empty, so no step begins at a known time.
    ],
)
def test_missing_pairs_of_complete_steps_are_the_headline(lost: tuple[int, ...]) -> None:
    result = result_of(matmul_loop(5), nth(*lost))
    assert headline(result) == LOST
    busy = result.metrics["gpu_busy_share"]
    assert (busy.trust, busy.bound) == ("unusable", "least")
    assert result.metrics["best_step_time_ms"].value is None and not result.findings


def test_launches_without_calls_are_not_lost_kernels() -> None:
    trace = matmul_loop(6)
    trace.events = [e for e in trace.events if e["cat"] != "cuda_runtime" or e["args"]["correlation"] % 3]
    result = result_of(trace)
    assert "gpu_records_missing" not in {check.key for check in result.failed}


def with_more(trace: ChromeTrace, step: int, operator: str, launches: int, dims: int = 64) -> None:
    """Add an operator with some launches at the end of a step of ``matmul_loop``."""
    at = 1000 * step + 800
    trace.op(operator, at, at + 100, [[dims, dims]], ["float"])
    for n in range(launches):
        trace.launch((at + 5 * n + 1, at + 5 * n + 3), (at + 20 * n + 10, at + 20 * n + 20), "k")


def searching(trace: ChromeTrace) -> None:
    for k in range(8):  # One step searches for the fastest algorithm.
        with_more(trace, k, "aten::convolution", 5 if k == 3 else 1)


def accumulating(trace: ChromeTrace) -> None:
    for k in range(8):  # An optimizer's update in every second step.
        if k % 2:
            with_more(trace, k, "aten::_foreach_add_", 2)


def of_varying_length(trace: ChromeTrace) -> None:
    for k in range(8):  # A long input needs a second kernel to add up.
        with_more(trace, k, "aten::sum", 1 + k % 2, dims=64 + k % 2)


def routed(trace: ChromeTrace) -> None:
    for k in range(8):  # Experts without tokens launch nothing.
        for expert in range(1 + k % 3):
            with_more(trace, k, f"aten::index_{expert}", int(expert != k % 2), dims=16 + 3 * k + expert)


@pytest.mark.parametrize("by_design", [searching, accumulating, of_varying_length, routed])
def test_steps_that_differ_by_design_are_complete(by_design: Callable[[ChromeTrace], None]) -> None:
    trace = matmul_loop(8)
    by_design(trace)
    assert result_of(trace).failed == ()
