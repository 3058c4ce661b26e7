"""Tests of ambiguous kernel names: shared by different kernels, or wrongly Triton's."""

from __future__ import annotations

import pytest

from sawtooth.app.words.headline import headline
from tests.incomplete.claims import result_of
from tests.support.chrome_trace import ChromeTrace, matmul_loop

BY_NAME = ("tensor_core_time_share", "mfu_factor_flop_kernels", "mfu_factor_efficiency")


def kernels(trace: ChromeTrace) -> list[dict]:
    return [event for event in trace.events if event["cat"] == "kernel"]


@pytest.mark.parametrize(("registers", "wrong"), [((32, 64, 128), True), ((32, 64), False), ((32,), False)])
def test_one_name_for_several_kernels_withholds_results_based_on_names(registers: tuple[int, ...], wrong: bool) -> None:
    trace = matmul_loop(12)
    for number, event in enumerate(kernels(trace)):
        event["args"]["registers per thread"] = registers[number % len(registers)]
    result = result_of(trace)
    assert [check.key for check in result.failed] == (["kernel_names_wrong"] if wrong else [])
    assert all((result.metrics[key].value is None) == wrong for key in BY_NAME)
    assert result.metrics["gpu_busy_share"].trust == "ok"
    assert ("tensor" in headline(result)) is False or not wrong


@pytest.mark.parametrize(("call", "wrong"), [("cudaLaunchKernel", True), ("cuLaunchKernelEx", False)])
def test_triton_never_launches_through_the_runtime(call: str, wrong: bool) -> None:
    trace = matmul_loop(12)
    for event in trace.events:
        if event["cat"] == "kernel":
            event["name"] = "triton_tem_fused_mm_3"
        elif event["cat"] == "cuda_runtime" and "Launch" in event["name"]:
            event["name"] = call
    result = result_of(trace)
    assert [check.key for check in result.failed] == (["kernel_names_wrong"] if wrong else [])
