"""Tests of contradictions in a trace, each with a near miss.

They are device numbers against contexts, captures instead of runs, and ranges that never end.
"""

from __future__ import annotations

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.app.words.headline import headline
from tests.incomplete.claims import result_of
from tests.support.chrome_trace import ChromeTrace, matmul_loop

LOADING = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def failed(result: RunResult) -> set[str]:
    return {check.key for check in result.failed}


@pytest.mark.parametrize(
    ("contexts", "processes", "wrong"),
    [
        ((1, 1), 1, True),
        ((1, 2), 1, False),  # One process with two GPUs.
        ((1, 1), 2, False),  # Two processes in one file, each with its own first context.
    ],
)
def test_a_context_belongs_to_one_device(contexts: tuple[int, int], processes: int, wrong: bool) -> None:
    trace = matmul_loop(12)
    for number, event in enumerate(e for e in trace.events if e["cat"] == "kernel"):
        other = number % 5 == 4
        event["args"]["context"] = contexts[other]
        if other:
            event["pid"] = event["args"]["device"] = 3
    calls = [e for e in trace.events if e["cat"] == "cuda_runtime"]
    for call in calls[: len(calls) // 2] if processes > 1 else []:
        call["pid"] = 2
    result = result_of(trace)
    assert ("devices_mixed" in failed(result)) == wrong
    if wrong:
        assert headline(result) == "The device numbers contradict each other. Record again."
        assert not result.findings
        assert all(reading.value is None for key, reading in result.metrics.items() if key.startswith("gpu_"))
        assert [check.key for check in result.failed].count("devices_mixed") == 1


def capturing(launches: int, *, steps: int = 6, captured_in: int = 1) -> ChromeTrace:
    """Return a loop of ``matmul_loop`` with launches captured into a graph in the first steps."""
    trace = matmul_loop(steps)
    for k in range(captured_in):
        at = 1000 * k + 920
        trace.host("cuda_runtime", "cudaStreamBeginCapture", at, at + 1)
        for n in range(launches):
            trace.host("cuda_runtime", "cudaLaunchKernel", at + 2 + n, at + 2.5 + n, correlation=9000 + 100 * k + n)
        trace.host("cuda_runtime", "cudaStreamEndCapture", at + launches + 3, at + launches + 4)
    return trace


@pytest.mark.parametrize(
    ("trace", "shown"),
    [
        (capturing(40, steps=1), True),  # The only step.
        (capturing(40, captured_in=6), True),  # every step
        (capturing(15, steps=1), False),  # Too small for a graph.
        (capturing(40, captured_in=1), False),  # The first of six steps, which is not counted.
    ],
)
def test_a_graph_capture_is_not_an_idle_run(trace: ChromeTrace, shown: bool) -> None:
    result = result_of(trace)
    assert ("captures_graph" in failed(result)) == shown
    assert (result.metrics["gpu_busy_share"].value is None) == shown
    if shown:
        assert headline(result) == "This trace shows the capture of a CUDA graph, not the run."
        assert not result.findings and result.lead is not None and not result.lead.ledger


@pytest.mark.parametrize(
    ("takes_us", "steps", "shown", "headed"), [(700, 6, True, True), (300, 6, True, False), (30, 6, False, False)]
)
def test_a_long_graph_capture_next_to_more_executed_launches(takes_us: int, steps: int, shown: bool, headed: bool) -> None:
    # Twenty launches are captured and forty run, as in a graph that is captured and replayed twice.
    trace = matmul_loop(steps)
    for k in range(steps):
        at = 1000 * k + 150
        trace.host("cuda_runtime", "cudaStreamBeginCapture", at, at + 1)
        for n in range(20):
            trace.host("cuda_runtime", "cudaLaunchKernel", at + 2 + n, at + 3 + n, correlation=9000 + 100 * k + n)
        trace.host("cuda_runtime", "cudaStreamEndCapture", at + takes_us - 1, at + takes_us)
        for n in range(40):
            trace.launch((at + takes_us + n, at + takes_us + n + 1), (at + 720 + n, at + 720.5 + n), "void at::native::fill()")
    result = result_of(trace)
    assert ("captures_graph" in failed(result)) == shown
    assert (headline(result) == "This trace shows the capture of a CUDA graph, not the run.") == headed
    assert headed or result.metrics["gpu_busy_share"].trust == ("caution" if shown else "ok")


@pytest.mark.parametrize(("until", "wrapped", "wrong"), [(6000, False, True), (0, False, False), (0, True, False)])
def test_a_range_of_loading_that_never_ends_lowers_the_trust(until: int, wrapped: bool, wrong: bool) -> None:
    trace = matmul_loop(6)
    for k in range(6):
        trace.host("user_annotation", LOADING, 1000 * k + 800, max(1000 * k + 980, until))
        if wrapped:  # A loader that reads from another.
            trace.host("user_annotation", LOADING, 1000 * k + 810, 1000 * k + 970)
    result = result_of(trace)
    assert ("ranges_unended" in failed(result)) == wrong
    assert (result.metrics["step_time_ms"].trust == "caution") == wrong


def test_steps_that_never_end_end_where_the_next_begins() -> None:
    trace, complete = matmul_loop(6), result_of(matmul_loop(6))
    for event in trace.events:
        if event["name"].startswith("ProfilerStep"):
            event["dur"] = 6000 - event["ts"]
    result = result_of(trace)
    for key in ("step_time_ms", "gpu_busy_share", "kernel_launches_per_step"):
        assert result.metrics[key] == complete.metrics[key], key


@pytest.mark.parametrize("kernels", [True, False])
def test_gaudi_events_outside_devices_are_not_kernels(kernels: bool) -> None:
    trace = matmul_loop(6)
    calls = [e for e in trace.events if e["cat"] == "cuda_runtime"]
    for call in calls:
        call["cat"], call["name"] = "hpu_op", "enqueueWithExternalEvents"
    if not kernels:
        trace.events = [e for e in trace.events if e["cat"] != "kernel"]
    result = result_of(trace)
    if kernels:
        assert result.metrics["gpu_busy_share"].value == pytest.approx(0.7, abs=0.1)
        assert {d.key: d.count for d in result.diagnostics}["not_stored_hpu_op"] == len(calls)
    else:
        assert headline(result) == "The device's events were not read, so nothing is known about it."
        assert result.metrics["best_step_time_ms"].value is None
