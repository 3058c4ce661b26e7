"""Tests of gradients that a loop clips one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.replay.edits import TimedOps, WithoutOps
from tests.support.anti_patterns import SLOW_US, clipping, op
from tests.support.by_hand import analysed, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import finding

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
            # This addition uses other numbers, after the clipping.
            end = op(trace, end, "aten::add", [[], [], []], host_us=SLOW_US)
        trace.step(k + 1, at, end + 5)
        at = end + 5
    return trace


@pytest.mark.parametrize(("by_hand", "operations"), [(False, 60), (True, 120)])
def test_squares_and_sums_of_norms_are_part_of_the_clipping(tmp_path: Path, by_hand: bool, operations: int) -> None:
    found = of_rule(analysed(tmp_path, clipped(by_hand)), "clipping-by-hand")
    assert found is not None and f"one by one: {operations} kernels" in found.title


@pytest.mark.parametrize(
    ("name", "in_one_call"),
    [
        ("norms_read_before_update", True),
        ("convnext_clip_by_hand", True),
        ("norms_read_after_update", False),
        ("few_norms_read_before_update", False),
        ("gpt_reads", True),
        ("dlrm_reads", False),
    ],
)
def test_norms_read_one_by_one_before_the_update_are_clipping_by_hand(name: str, in_one_call: bool) -> None:
    found = finding(name, "host-waits-for-gpu")
    assert found is not None
    assert ("from one call: clip_grad_norm_" in found.fix) is in_one_call
    assert ("clip_grad_norm_" in found.changes[0].after) is in_one_call


def test_the_kernels_that_clip_stay_in_the_prediction() -> None:
    """Two kernels replace 12 norms of 4 µs.

    Each norm reads its gradient for 2 µs, without the 2 µs of a kernel's start. The two kernels read each gradient twice and write it
    once: 3 · 24 µs.
    """
    found = finding("norms_read_before_update", "host-waits-for-gpu")
    assert found is not None
    remaining = next(edit for edit in found.edits if isinstance(edit, TimedOps))
    steps = len(remaining.ops) // 2
    assert sum(remaining.dur_ns) == steps * 3 * 12 * 2_000
    removed = {op for edit in found.edits if isinstance(edit, WithoutOps) for op in edit.ops}
    assert not removed & set(remaining.ops)
