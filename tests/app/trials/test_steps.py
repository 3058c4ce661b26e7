"""Step times of a trial: their mean with its interval, and what compiling takes at the start."""

import math

import pytest

from sawtooth.app.trials import steps


def test_steps_that_compile_are_a_cost_of_the_start() -> None:
    took = [970.0, 660.0, 310.0, *[10.0] * 200, 400.0]  # the last is a checkpoint
    assert steps.compiling_s(took) == pytest.approx((960 + 650 + 300) / 1e3)
    assert steps.compiling_s([20.0, *[10.0] * 20]) == 0.0 and steps.compiling_s([]) == 0.0


def test_the_mean_leaves_out_the_warm_up_and_has_an_interval_of_eight_blocks() -> None:
    # 100 steps, of which the first 20 are left out. Blocks of 10 take 9 and 11 ms in turn.
    took = [50.0] * 20 + ([9.0] * 10 + [11.0] * 10) * 4
    mean, half = steps.mean_and_half_width(took)
    assert mean == 10.0
    # The standard deviation of the blocks is √(8 ÷ 7); Student's t of 7 degrees of freedom at 97.5 % is 2.3646.
    assert half == pytest.approx(2.3646 * math.sqrt(8 / 7) / math.sqrt(8), rel=1e-4)
    assert steps.mean_and_half_width([10.0] * 40)[1] == math.inf  # 32 steps count; 40 are needed


def test_halves_show_the_drift() -> None:
    assert steps.halves([0.0] * 20 + [10.0] * 40 + [12.0] * 40) == (10.0, 12.0)
    assert steps.halves([10.0] * 48) is None
