"""Tests of loops in which every n-th step does more: the counted steps are whole rounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import ADDS, analysed
from tests.support.chrome_trace import ChromeTrace


def counted(folder: Path, kernels: list[int]) -> list[int]:
    """Return the counted steps of a run whose k-th step launches ``kernels[k]`` kernels in sequence.

    Each kernel takes 20 µs.
    """
    trace, at = ChromeTrace(), 0.0
    for k, count in enumerate(kernels):
        begin = at
        for _ in range(count):
            trace.op("aten::add", at, at + 19, [[64, 64], [64, 64]], ["float", "float"])
            trace.launch((at + 2, at + 5), (at + 6, at + 18), ADDS)
            at += 20
        trace.step(k + 1, begin, at)
    lead = analysed(folder, trace).lead
    assert lead is not None
    return [int(step) for step in lead.counted["step"]]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("kernels", "steps"),
    [
        ([30, 10, 10, 30, 10, 10], [1, 2, 3]),  # The first is never counted: one round of three, of which one evaluates.
        ([10, 10, 30, 10, 10, 30, 10, 10], [1, 2, 3, 4, 5, 6]),  # two rounds
        ([10, 10, 10, 30, 10, 10], [1, 2, 3, 4, 5]),  # One heavy step does not show a period.
        ([10, 30, 10, 10, 10, 30, 10, 30], [1, 2, 3, 4, 5, 6, 7]),  # Uneven steps do not either.
        ([10, 11, 10, 11, 10, 11], [1, 2, 3, 4, 5]),  # Ten percent more is not an evaluation.
    ],
)
def test_counted_steps_are_whole_rounds(tmp_path: Path, kernels: list[int], steps: list[int]) -> None:
    assert counted(tmp_path, kernels) == steps


def test_calls_of_the_watchdog_make_no_rounds_of_one_optimizers_steps(tmp_path: Path) -> None:
    """NCCL's watchdog makes 60 calls in every third step of the optimizer."""
    trace = ChromeTrace()
    for k in range(6):
        at = 1_000.0 * k
        for n in range(10):
            trace.launch((at + 20 * n, at + 20 * n + 5), (at + 20 * n + 6, at + 20 * n + 19), ADDS)
        trace.host("user_annotation", "Optimizer.step#AdamW.step", at + 400, at + 900)
        trace.launch((at + 410, at + 415), (at + 420, at + 500), ADDS)
        trace.thread = 2
        for n in range(60 if k % 3 == 2 else 0):
            trace.host("cuda_runtime", "cudaEventQuery", at + 420 + 5 * n, at + 422 + 5 * n)
        trace.thread = 1
    lead = analysed(tmp_path, trace).lead
    assert lead is not None
    assert len(lead.steps) == 6
