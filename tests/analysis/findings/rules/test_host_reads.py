"""Tests of findings about reads of GPU values by the host, and of their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import ADDS, FLOAT, analysed, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding, result_of, stopwatch_ms

STEP_US = 1000


def test_removing_reads_removes_the_work_only_they_need(tmp_path: Path) -> None:
    # A step has a kernel of 200 µs and ten norms of 20 µs, which are read at once. Without the reads, the kernel and the launches remain.
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        trace.op("aten::add", at + 10, at + 30, [[64, 64], [64, 64]], FLOAT)
        trace.launch((at + 15, at + 20), (at + 25, at + 225), ADDS)
        for i in range(10):
            t = at + 240 + 60 * i
            trace.op("aten::linalg_vector_norm", t, t + 9, [[1024, 1024]], ["float"])
            trace.launch(
                (t + 3, t + 6), (t + 10, t + 30), "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)"
            )
            trace.op("aten::item", t + 10, t + 50, [[]], ["float"])
            trace.op("aten::_local_scalar_dense", t + 11, t + 49, [[]], ["float"])
            trace.launch((t + 12, t + 16), (t + 31, t + 33), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy")
            trace.host("cuda_runtime", "cudaStreamSynchronize", t + 17, t + 45)
    found = of_rule(analysed(tmp_path, trace), "host-waits-for-gpu")
    assert found is not None and found.predicted_step_ms is not None
    assert found.predicted_step_ms < 0.41  # The kernel takes 0.2 ms. The norms would add at least 0.2 ms.
    assert {type(edit).__name__ for edit in found.edits} == {"WithoutWaits", "WithoutOps"}


def test_a_graph_needs_removal_of_waits_that_it_cannot_contain(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for at in trace.each_step(4, STEP_US):
        for start in range(at + 5, at + 905, 10):  # The host takes 10 µs to launch 2 µs of work.
            trace.op("aten::add", start, start + 9, [[64, 64], [64, 64]], FLOAT)
            trace.launch((start + 3, start + 7), (start + 7, start + 9), ADDS)
        trace.op("aten::nonzero", at + 920, at + 960, [[64]], ["bool"])
        trace.host("cuda_runtime", "cudaStreamSynchronize", at + 940, at + 941)
    launches = of_rule(analysed(tmp_path, trace), "launch-bound")
    assert (
        launches is not None and "comes first, because no graph can contain an operator that waits" in launches.prediction_note
    )


def test_avoidable_reads_come_before_the_graph_that_they_cut() -> None:
    findings = result_of("density_prints").findings
    assert [f.rule for f in findings[:3]] == ["boolean-mask-waits", "host-waits-for-gpu", "launch-bound"]
    for found, times in zip(
        findings, ("2 times", "26 times"), strict=False
    ):  # 84 cudaStreamSynchronize in three steps, 6 of them in masks
        assert (
            found.severity == "warning" and found.predicted_step_ms is None
        )  # Measured steps take 26.4 and 26.0 ms, so there is no gain.
        assert times in found.title
    assert not any(f.rule == "host-waits-for-gpu" for f in result_of("density").findings)


def test_python_work_on_copied_images_is_removed_with_the_copy() -> None:
    found = finding("likeness_copies", "host-waits-for-gpu")
    assert found is not None and found.predicted_low_ms is not None and found.predicted_high_ms is not None
    assert found.predicted_low_ms < stopwatch_ms("likeness") < found.predicted_high_ms


@pytest.mark.parametrize("rows", [0, 8])
def test_repeats_read_by_the_host_come_before_the_graph_that_they_cut(tmp_path: Path, rows: int) -> None:
    # The host is late anyway, so its waits alone cost little.
    trace = ChromeTrace()
    for at in trace.each_step(4, 4 * STEP_US):
        for row in range(12):
            start = at + 10 + 300 * row
            for begin in range(0, 240, 40):
                trace.op("aten::add", start + begin, start + begin + 36, [[64, 64], [64, 64]], FLOAT)
                trace.launch((start + begin + 10, start + begin + 15), (start + begin + 18, start + begin + 21), ADDS)
            if row < rows:
                trace.op("aten::repeat_interleave", start + 245, start + 280, [[60, 256], [60]], FLOAT)
                trace.host("cuda_runtime", "cudaStreamSynchronize", start + 246, start + 249)
    found = analysed(tmp_path, trace).findings
    assert ([f.rule for f in found[:2]] == ["boolean-mask-waits", "launch-bound"]) == bool(rows)
    if rows:
        assert "8 times per step" in found[0].title and "output_size" in found[0].fix and found[0].predicted_step_ms is None


def _launches(trace: ChromeTrace, at: float, count: int) -> float:
    """Add ``count`` operators of 24 µs on the host whose kernels take 4 µs."""
    for _ in range(count):
        trace.op("aten::add", at, at + 24, [[64, 64], [64, 64]], FLOAT)
        trace.launch((at + 8, at + 12), (at + 14, at + 18), ADDS)
        at += 25
    return at


def _wait(trace: ChromeTrace, at: float, operator: str) -> float:
    """Add an operator in which the host waits 2 µs for a value, and return its end."""
    if operator == "aten::copy_":
        trace.op(operator, at, at + 20, [[1000], [1000], []], ["float", "float", "Scalar"])
        trace.launch((at + 2, at + 5), (at + 6, at + 8), "Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", bytes=4000)
    else:
        trace.op(operator, at, at + 20, [[64]], ["bool"])
    trace.host("cuda_runtime", "cudaStreamSynchronize", at + 10, at + 12)
    return at + 21


@pytest.mark.parametrize(
    ("waits", "expected"),
    [
        ({"aten::nonzero": 5, "aten::item": 3}, {"boolean-mask-waits": "5 times", "host-waits-for-gpu": "3 times"}),
        ({"aten::unique_dim": 2}, {"boolean-mask-waits": "2 times"}),
        ({"aten::copy_": 2}, {"host-waits-for-gpu": "2 times"}),
        ({"aten::item": 1}, {"host-waits-for-gpu": "once"}),
        ({}, {}),  # The near miss: nothing stops the capture.
    ],
)
@pytest.mark.parametrize("at_end", [False, True])
def test_each_kind_of_wait_that_stops_a_capture_is_named_before_the_graph(
    tmp_path: Path, waits: dict[str, int], expected: dict[str, str], at_end: bool
) -> None:
    trace, at = ChromeTrace(), 0.0
    for k in range(4):
        begin, at = at, _launches(trace, at + 5, 60)
        for operator, count in waits.items():
            for _ in range(count):
                at = _wait(trace, at, operator)
        at = at if at_end else _launches(trace, at, 60)
        trace.step(k + 1, begin, at)
        at += 1
    findings = analysed(tmp_path, trace).findings
    graph = next(n for n, found in enumerate(findings) if found.rule == "launch-bound")
    assert {found.rule for found in findings[:graph]} == set(expected)
    assert all(expected[found.rule] in found.title for found in findings[:graph])


@pytest.mark.parametrize(("first", "title", "is_chance"), [(3, "once in 4 steps", True), (0, "once per step", False)])
def test_a_wait_in_one_of_the_profiled_steps_may_be_chance(tmp_path: Path, first: int, title: str, *, is_chance: bool) -> None:
    """A step has kernels of 600 µs, launched in 300 µs.

    After a wait, the GPU is idle until the next launch. The host waits at the end of the steps from ``first`` on. No launch follows the last wait.
    """
    trace = ChromeTrace()
    at = 0.0
    for k in range(5):
        start = at
        trace.op("Optimizer.step#SGD.step", at + 5, at + 8, [], [])
        for i in range(3):
            trace.op("aten::add", at + 100 * i + 10, at + 100 * i + 90, [[64, 64], [64, 64]], FLOAT)
            begin = start + 60 + 200 * i
            trace.launch((at + 100 * i + 40, at + 100 * i + 45), (begin, begin + 200), ADDS)
        if k >= first:
            trace.host("cuda_runtime", "cudaDeviceSynchronize", at + 310, start + 662)
        at = start + 664
        trace.step(k + 1, start, at)
    found = of_rule(analysed(tmp_path, trace), "host-waits-for-gpu")
    assert found is not None
    assert title in found.title.replace("\xa0", " ")
    assert (found.confidence == "low") == is_chance
