"""Tests of gradients that a loop clips one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.anti_patterns import SLOW_US, clipping, op
from tests.support.by_hand import analysed, of_rule
from tests.support.chrome_trace import ChromeTrace

GRADIENTS = 30


def clipped(by_hand: bool) -> ChromeTrace:
    """Return steps that clip 30 gradients; ``by_hand`` squares and sums their norms one by one in between."""
    trace, at = ChromeTrace(made_for=f"clipping {by_hand}"), 0.0
    for k in range(4):
        end = clipping(trace, at + 10, scaled=False)
        for _ in range(GRADIENTS if by_hand else 0):
            end = op(trace, end, "aten::pow", [[], []], host_us=SLOW_US)
            end = op(trace, end, "aten::add", [[], [], []], host_us=SLOW_US)
        for _ in range(GRADIENTS):
            end = op(trace, end, "aten::mul_", [[256, 256], []], host_us=SLOW_US)
        for _ in range(40):
            end = op(trace, end, "aten::add", [[], [], []], host_us=SLOW_US)  # of other numbers, after the clipping
        trace.step(k + 1, at, end + 5)
        at = end + 5
    return trace


@pytest.mark.parametrize(("by_hand", "operations"), [(False, 60), (True, 120)])
def test_squares_and_sums_of_norms_are_part_of_the_clipping(tmp_path: Path, by_hand: bool, operations: int) -> None:
    found = of_rule(analysed(tmp_path, clipped(by_hand)), "clipping-by-hand")
    assert found is not None and f"one by one: {operations} kernels" in found.title
