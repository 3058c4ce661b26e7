"""Tests of a trial's step times: mean with its interval, and compile time at the start."""

import math
from pathlib import Path

import pytest

from sawtooth.app.trials import steps
from sawtooth.ingest.capture.command.progress import MarksTail


def test_compiling_steps_are_a_cost_of_the_start() -> None:
    step_times = [970.0, 660.0, 310.0, *[10.0] * 200, 400.0]  # The last step writes a checkpoint.
    assert steps.compiling_s(step_times) == pytest.approx((960 + 650 + 300) / 1e3)
    assert steps.compiling_s([20.0, *[10.0] * 20]) == 0.0 and steps.compiling_s([]) == 0.0


def test_the_mean_leaves_out_the_warm_up_and_has_an_interval_of_eight_blocks() -> None:
    # 100 steps, of which the first 20 are left out. Blocks of 10 alternate between 9 and 11 ms.
    step_times = [50.0] * 20 + ([9.0] * 10 + [11.0] * 10) * 4
    mean, half = steps.mean_and_half_width(step_times)
    assert mean == 10.0
    # The standard deviation of the blocks is √(8 ÷ 7); Student's t of 7 degrees of freedom at 97.5 % is 2.3646.
    assert half == pytest.approx(2.3646 * math.sqrt(8 / 7) / math.sqrt(8), rel=1e-4)
    assert steps.mean_and_half_width([10.0] * 40)[1] == math.inf  # 32 steps count; 40 are needed


def test_the_drift_is_the_difference_of_both_halves() -> None:
    assert steps.half_medians([0.0] * 20 + [10.0] * 40 + [12.0] * 40) == (10.0, 12.0)
    assert steps.half_medians([10.0] * 48) is None
    # Fast and slow steps alternate. In the first half, 3 of 5 steps are fast, in the second 2 of 5. The medians of steps are 30 and 150.
    first, second = steps.half_medians(
        [0.0] * 40 + [30.0, 150.0, 30.0, 150.0, 30.0] * 16 + [150.0, 30.0, 150.0, 30.0, 150.0] * 16
    ) or (0, 0)
    assert (first, second) == pytest.approx((78.0, 102.0))


def test_steps_read_in_two_parts_equal_those_read_at_once(tmp_path: Path) -> None:
    # There is an evaluation between two training steps, and the last mark is only half written at the first read.
    ends = [(i, 1_000_000_000 + i * 20_000_000, "eval" if i == 2 else "train") for i in range(6)]
    lines = [f'{{"k": "mark", "i": {i}, "w": {w}, "p": "{phase}", "o": 0}}\n' for i, w, phase in ends]
    path, tail = tmp_path / "marks-7.jsonl", MarksTail(tmp_path, max_marks=None)
    path.write_text("".join(lines[:4])[:-9])
    assert steps.step_ms(tail.marks()) == ([20.0], 0.04)
    path.write_text("".join(lines))
    assert steps.step_ms(tail.marks()) == steps.step_ms(MarksTail(tmp_path, max_marks=None).marks()) == ([20.0] * 3, 0.1)
    assert steps.step_ms(MarksTail(tmp_path / "none").marks()) == ([], 0.0)
