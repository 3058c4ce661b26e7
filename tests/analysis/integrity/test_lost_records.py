"""Tests of launches without a record on the GPU.

Numbers that they affect get a bound or are withheld. Lost launches are ignored if complete steps remain. A launch for which
no record is expected is no fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.compare.gate import COULD_NOT_JUDGE, judge, parse_gate
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.findings.checking import all_rules
from sawtooth.analysis.findings.model import SOURCES
from sawtooth.analysis.integrity import lost_records
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.app.words.headline import headline
from tests.incomplete.claims import analysed
from tests.support.chrome_trace import ChromeTrace, matmul_loop

GPU = {"kernel", "gpu_memcpy", "gpu_memset"}


def result_of(trace: ChromeTrace, keep: Callable[[int, dict[str, Any]], bool] = lambda k, e: True) -> RunResult:
    """Return the analysis of a trace with those GPU operations, numbered in order, that ``keep`` chooses."""
    operations = [e for e in trace.events if e["cat"] in GPU]
    lost = {id(e) for k, e in enumerate(operations) if not keep(k, e)}
    trace.events = [e for e in trace.events if id(e) not in lost]
    result = analysed([("t.json", trace.json())])
    assert result is not None
    return result


@pytest.mark.parametrize("steps", [5, 9])
def test_a_loss_of_every_second_record_gives_bounds_and_skips_rules(steps: int) -> None:
    # Each step has 2 kernels, of 600 and 100 µs; the products are lost: half of the records, and 6/7 of the busy time.
    result = result_of(matmul_loop(steps), lambda k, e: k % 2 == 1)
    assert headline(result) == "Half of the GPU's records are missing. Record again with fewer steps."
    busy = result.metrics["gpu_busy_share"]
    assert (busy.trust, busy.bound, busy.high) == ("unusable", "least", 1)
    assert busy.value == pytest.approx(0.1, abs=0.02)
    assert result.metrics["best_step_time_ms"].value is None
    assert result.lead is not None and not result.lead.ledger and not result.findings
    reads = {rule.slug for rule in all_rules() if rule.reads & set(lost_records.EVIDENCE)}
    assert {rule.rule for rule in result.not_checked} >= reads
    assert set(lost_records.EVIDENCE) <= SOURCES
    assert report_json(result)["failed_checks"][0]["headline"] == headline(result)


@pytest.mark.parametrize(("first", "behind"), [(0, 4), (6, 10), (14, 20)])
def test_steps_that_lack_records_are_not_counted(first: int, behind: int) -> None:
    complete = result_of(matmul_loop(10))
    result = result_of(matmul_loop(10), lambda k, e: not first <= k < behind)
    assert result.withdrawn_by is None
    assert result.lead is not None
    lacks = result.lead.steps["lost"].to_numpy()
    assert lacks.sum() == behind - first
    assert not result.lead.steps.loc[lacks > 0, "counted"].any()
    for key in ("step_time_ms", "gpu_busy_share", "kernel_launches_per_step", "flops_per_step"):
        assert result.metrics[key].value == pytest.approx(complete.metrics[key].value, rel=0.01), key
    (check,) = result.failed
    assert check.sentence.startswith(
        f"{(behind - first) // 2} of 10 steps lack records of the GPU for {behind - first} launches"
    )


def test_a_trace_without_any_record_is_not_a_run_without_gpu() -> None:
    trace = matmul_loop(6)
    for k in range(6):
        trace.host(
            "user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1000 * k + 200, 1000 * k + 900
        )
    result = result_of(trace, lambda k, e: False)
    assert headline(result) == "The GPU's records are missing. Record again."
    assert result.metrics["best_step_time_ms"].value is None
    assert not result.findings and {rule.rule for rule in result.not_checked} >= {"data-loader-starves-gpu"}
    assert "no_gpu" not in {diagnostic.key for diagnostic in result.diagnostics}


def test_graph_launches_without_kernels_leave_the_busy_time_unknown() -> None:
    trace = ChromeTrace()
    for k in range(5):
        trace.step(k, 1000 * k, 1000 * k + 1000)
        trace.launch((1000 * k + 10, 1000 * k + 14), (1000 * k + 20, 1000 * k + 30), "k")
        for n in range(3):
            trace.host("cuda_runtime", "cudaGraphLaunch", 1000 * k + 20 + n, 1000 * k + 21 + n, correlation=9000 + 10 * k + n)
        trace.host("cuda_runtime", "cudaStreamSynchronize", 1000 * k + 40, 1000 * k + 990)
    result = result_of(trace)
    assert headline(result) == "The kernels of CUDA graphs are missing. Record them too."
    assert result.metrics["gpu_busy_share"].bound == "least" and not result.findings


@pytest.mark.parametrize("call", ["cudaMemsetAsync", "cudaLaunchHostFunc", "cudaStreamSynchronize"])
def test_calls_without_expected_records_are_not_a_fault(call: str) -> None:
    trace = matmul_loop(6)
    for k in range(6):
        trace.host("cuda_runtime", call, 1000 * k + 92, 1000 * k + 93, correlation=9000 + k)
    assert result_of(trace).failed == ()


def test_launches_during_graph_capture_are_not_a_fault() -> None:
    trace = matmul_loop(6)
    trace.host("cuda_runtime", "cudaStreamBeginCapture", 2100, 2101, correlation=9000)
    trace.host("cuda_runtime", "cudaLaunchKernel", 2110, 2112, correlation=9001)
    trace.host("cuda_runtime", "cudaStreamEndCapture", 2120, 2121, correlation=9002)
    assert result_of(trace).failed == ()
    trace.host("cuda_runtime", "cudaLaunchKernel", 2130, 2132, correlation=9003)  # After the capture, a record is expected.
    assert result_of(trace).failed != ()


def test_a_gate_and_a_comparison_do_not_judge_withheld_numbers() -> None:
    sides = []
    for result in (result_of(matmul_loop(6)), result_of(matmul_loop(6), lambda k, e: k % 2 == 1)):
        best = result.metrics["best_step_time_ms"].value
        sides.append(Side((result,), (MeasuredSteps((), best, "profile", (result.manifest.id,)),), (), ()))
    comparison = compare(*sides)
    assert comparison.verdict.word == "inconclusive" and "Half of the GPU's records are missing" in comparison.verdict.why
    code, _ = judge(comparison, [parse_gate("gpu_busy_share:-5pp"), parse_gate("best_step_time_ms:+5%")])
    assert code == COULD_NOT_JUDGE


@pytest.mark.parametrize("device", ["Ascend Hardware", "Gaudi HPU 0"])
def test_a_device_in_an_unknown_form_is_named(device: str) -> None:
    trace = matmul_loop(6)
    for event in trace.events:
        if event["cat"] == "kernel":
            del event["cat"]
            event["pid"] = 99
    trace.events = [e for e in trace.events if e.get("cat") != "cuda_runtime"]
    trace.events.append({"ph": "M", "name": "process_name", "pid": 99, "args": {"name": device}})
    result = analysed([("t.json", trace.json())])
    assert result is not None
    assert headline(result) == "The device's events were not read, so nothing is known about it."
    assert device in result.failed[0].sentence and result.failed[0].count == 12
    assert result.metrics["best_step_time_ms"].value is None and not result.findings


def test_ranges_of_counters_in_place_of_kernels_are_named() -> None:
    trace = matmul_loop(4)
    for event in trace.events:
        if event["cat"] == "kernel":
            event["cat"] = "cuda_profiler_range"
    result = analysed([("t.json", trace.json())])
    assert result is not None
    (check,) = result.failed
    assert "range profiler" in check.sentence and "profiler_metrics" in check.advice
