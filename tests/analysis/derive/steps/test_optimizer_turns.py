"""Tests of loops whose optimizers take turns, like generator and critic. Times are in µs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.by_hand import ADDS, FUSED_ADAM, analysed
from tests.support.chrome_trace import ChromeTrace

UPDATES = 12
UPDATE_US = 1_000  # From the end of one optimizer's step to the end of the next.


def profiled_step_us(folder: Path, backward: tuple[int, ...], reads: tuple[int, ...], kernel_us: tuple[float, ...]) -> float:
    """Return the profiled step of a loop with twelve optimizer steps.

    The k-th update, k modulo their number, has ``backward[k]`` operators in its backward pass, ``reads[k]`` operators in the
    optimizer's step, and a fused kernel of ``kernel_us[k]``.
    """
    trace = ChromeTrace()
    for update in range(UPDATES):
        turn, at = update % len(backward), UPDATE_US * update
        for n in range(backward[turn]):
            trace.op("autograd::engine::evaluate_function: AddBackward0", at + 10 * n, at + 10 * n + 9)
            trace.launch((at + 10 * n + 1, at + 10 * n + 4), (at + 10 * n + 5, at + 10 * n + 9), ADDS)
        trace.host("user_annotation", "Optimizer.step#Adam.step", at + 700, at + UPDATE_US)
        for n in range(reads[turn]):
            trace.op("aten::item", at + 701 + 2 * n, at + 702 + 2 * n)
        trace.launch((at + 800, at + 805), (at + 810, at + 810 + kernel_us[turn]), FUSED_ADAM)
    lead = analysed(folder, trace).lead
    assert lead is not None and lead.best.profiled.value is not None
    return lead.best.profiled.value * 1e3


@pytest.mark.parametrize(
    ("backward", "reads", "kernel_us", "updates"),
    [
        # 18 and 14 parameters, each read twice: only the numbers of operators differ.
        ((20, 20), (36, 28), (40, 40), 2),
        # A few more operators do not show another optimizer.
        ((20, 20), (36, 32), (40, 40), 1),
        # Fused: one operator each. The backward pass and the kernel's time show two networks.
        ((20, 31), (1, 1), (44, 42), 2),
        ((20, 20), (1, 1), (44, 42), 1),
        # One optimizer for two losses: its kernel takes equally long.
        ((20, 31), (1, 1), (44, 44), 1),
        # A critic that steps three times before its generator.
        ((20, 20, 20, 31), (1, 1, 1, 1), (40, 40, 40, 46), 4),
    ],
)
def test_updates_of_one_step(
    tmp_path: Path, backward: tuple[int, ...], reads: tuple[int, ...], kernel_us: tuple[float, ...], updates: int
) -> None:
    assert profiled_step_us(tmp_path, backward, reads, kernel_us) == pytest.approx(updates * UPDATE_US, rel=0.01)
