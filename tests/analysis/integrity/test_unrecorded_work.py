"""Tests of unrecorded work: waits that outlast the GPU's work, and gaps within CUDA graphs."""

from __future__ import annotations

import pytest

from sawtooth.app.words.headline import headline
from tests.incomplete.claims import result_of
from tests.support.chrome_trace import ChromeTrace

HEADLINE = "The GPU ran work that is not recorded. Record again."


def waiting(call: str, tail_us: float, *, every: int = 1, beside: str = "cudaEventRecord") -> ChromeTrace:
    """Return a loop whose steps have 500 µs of GPU work and a wait that lasts ``tail_us`` longer."""
    trace = ChromeTrace()
    for k in range(8):
        at = 1000 * k
        trace.step(k, at, at + 1000)
        for j in range(10):
            trace.op("aten::mm", at + 10 + 20 * j, at + 25 + 20 * j)
            trace.launch((at + 12 + 20 * j, at + 17 + 20 * j), (at + 20 + 48 * j, at + 68 + 48 * j), "kernel")
        trace.host("cuda_runtime", beside, at + 230, at + 231)
        trace.host("cuda_runtime", call, at + 232, at + 500 + (tail_us if k % every == 0 else 5))
    return trace


@pytest.mark.parametrize(
    ("call", "tail_us", "every", "beside", "shown"),
    [
        ("cudaEventSynchronize", 450, 1, "cudaEventRecord", True),
        ("cudaStreamSynchronize", 450, 1, "cudaEventRecord", True),
        ("cudaDeviceSynchronize", 450, 1, "cudaLaunchHostFunc", False),  # The stream may wait for the function.
        ("cudaStreamSynchronize", 450, 4, "cudaEventRecord", False),  # A host that resumed late in few steps.
        ("cudaStreamSynchronize", 60, 1, "cudaEventRecord", False),
        ("cudaEventQuery", 450, 1, "cudaEventRecord", False),  # This call does not wait.
    ],
)
def test_a_wait_that_outlasts_the_gpus_work_shows_missing_work(
    call: str, tail_us: float, every: int, beside: str, shown: bool
) -> None:
    result = result_of(waiting(call, tail_us, every=every, beside=beside))
    assert (headline(result) == HEADLINE) == shown
    assert (result.metrics["gpu_busy_share"].bound == "least") == shown
    assert not (shown and result.findings)


@pytest.mark.parametrize(
    ("within_us", "after_us", "queued", "wrong"),
    [(0.5, 5, True, False), (5, 5, True, True), (0.5, 40, True, True), (0.5, 40, False, False)],
)
def test_long_gaps_of_a_graph_show_missing_kernels(within_us: float, after_us: float, queued: bool, wrong: bool) -> None:
    trace = ChromeTrace()
    at = 0.0
    for k in range(8):
        launched = 10 * k if queued else at - 5
        trace.host("cuda_runtime", "cudaGraphLaunch", launched, launched + 4, correlation=k + 1)
        at = max(at, launched + 10)
        for _ in range(40):
            trace.gpu((at, at + 10), "kernel", correlation=k + 1)
            at += 10 + within_us
        at += after_us
    result = result_of(trace)
    assert ("graph_gaps" in {check.key for check in result.failed}) == wrong
    assert (result.metrics["gpu_busy_share"].trust == "ok") != wrong
