"""Tests of slow batch transfers, by hand-made traces.

If copying the batch to the GPU is the slow part of loading, the rules about copies report it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import analysed
from tests.support.chrome_trace import ChromeTrace

STEP_US, STEPS = 20_000, 6
BATCH = " (the transfer of the batch)"
BYTES = 55_000  # A pinned copy moves this many bytes in a microsecond.


def loop(memory: str, copy_us: int, *, after_kernel: bool = False) -> ChromeTrace:
    """Add steps of 20 ms: 0.3 ms in the loader, a copy of ``copy_us`` and a kernel for the rest.

    With ``after_kernel``, a kernel is launched before the copy.
    """
    trace = ChromeTrace()
    for at in trace.each_step(STEPS, STEP_US, first=0):
        trace.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, at + 300)
        if after_kernel:
            trace.op("aten::mm", at + 310, at + 350, [[64, 64]] * 2, ["float"] * 2)
            trace.launch((at + 315, at + 325), (at + 330, at + 390), "gemm")
        copied = at + 400 + copy_us
        waits = memory == "Pageable"
        trace.op("aten::to", at + 395, copied + 5 if waits else at + 415)
        trace.correlation += 1
        trace.host("cuda_runtime", "cudaMemcpyAsync", at + 400, at + 405, correlation=trace.correlation)
        trace.gpu(
            (at + 400, copied), f"Memcpy HtoD ({memory} -> Device)", "gpu_memcpy",
            correlation=trace.correlation, bytes=copy_us * (BYTES // 5 if waits else BYTES),
        )  # fmt: skip
        if waits:
            trace.host("cuda_runtime", "cudaStreamSynchronize", at + 406, copied + 2, correlation=trace.correlation + 10_000)
        launched = copied + 10 if waits else at + 430
        trace.op("aten::mm", launched, launched + 40, [[1024, 1024]] * 2, ["float"] * 2)
        trace.launch((launched + 5, launched + 15), (max(launched + 20, copied + 5), at + STEP_US - 10), "gemm")
    return trace


@pytest.mark.parametrize(
    ("rule", "memory", "copy_us"),
    [
        ("pageable-copies", "Pageable", 8_000),
        ("copies-not-overlapped", "Pinned", 8_000),
        ("host-link-saturated", "Pinned", 17_000),
    ],
)
@pytest.mark.parametrize("after_kernel", [False, True])
def test_a_slow_copy_before_the_first_kernel_is_the_batch_transfer(
    tmp_path: Path, rule: str, memory: str, copy_us: int, after_kernel: bool
) -> None:
    # A copy after the step's first kernel may be of anything.
    findings = {
        finding.rule: finding for finding in analysed(tmp_path, loop(memory, copy_us, after_kernel=after_kernel)).findings
    }
    assert (BATCH in findings[rule].title) is not after_kernel, findings[rule].title
