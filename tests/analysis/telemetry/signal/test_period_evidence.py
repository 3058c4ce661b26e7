"""Tests of the step time from the period of GPU activity.

The period of each telemetry is known by arithmetic. A GPU works at the start of each step, and each sample is the exact share of its 100 ms.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sawtooth.analysis.metrics.step_time_evidence import HOST_DRIFT, StepTimeEvidence
from sawtooth.analysis.telemetry.signal.period_evidence import with_period
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth, find_sawtooth
from tests.support.pulses import START_NS, sampled_work


def tooth_of(steps_s: list[float], work_s: float, *, spacing_s: float = 0.1, tiles: bool = True) -> Sawtooth:
    """Return the sawtooth of steps of these lengths, each with ``work_s`` of work at its start."""
    starts = np.concatenate([[0.0], np.cumsum(steps_s)])
    ends = np.arange(spacing_s, starts[-1], spacing_s)
    values = sampled_work(starts[:-1], starts[:-1] + work_s, ends, ends - spacing_s)
    return find_sawtooth(START_NS + np.round(ends * 1e9).astype(np.int64), values, windows_tile=tiles)


def evidence(by_law: StepTimeEvidence, tooth: Sawtooth) -> StepTimeEvidence:
    return with_period(by_law, tooth, "GPU activity")


def law(ms: float, width: float = 1.3) -> StepTimeEvidence:
    """Return the step by kernel time ÷ utilization, with high ÷ low of ``width``."""
    return StepTimeEvidence("telemetry", ms, ms / width**0.5, ms * width**0.5, ("kernels ÷ utilization", "a reservation"))


def test_period_of_one_step_replaces_kernel_time_over_utilization() -> None:
    # 40 steps of 750 ms and 150 ms of work. Kernels that are 4 % longer under the profiler give 780 ms.
    tooth = tooth_of([0.75] * 40, 0.15)
    found = evidence(law(780.0), tooth)
    assert found.ms == pytest.approx(750.0, rel=0.003)
    assert (found.source, found.steps_per_period) == ("telemetry", 1)
    # Both intervals hold: 780 ÷ √1.3 = 684.1 from below. The period's own end, 750 × 1.14 = 855, is below 780 × √1.3 = 889.
    assert found.low_ms == pytest.approx(684.1, abs=0.1)
    assert found.high_ms == pytest.approx(750 * (1 + HOST_DRIFT), rel=0.01)
    assert found.notes[0].startswith("GPU activity repeats every 75") and "One period is one step" in found.notes[0]
    assert "780 ms" in found.notes[1] and found.notes[2:] == ("a reservation",)


def test_long_telemetry_narrows_the_interval() -> None:
    # 800 steps of 0.75 s are ten minutes: the drift of the host's speed is 14 % ÷ √10 = 4.4 %.
    found = evidence(law(780.0), tooth_of([0.75] * 800, 0.15))
    assert found.ms == pytest.approx(750.0, rel=0.001)
    assert found.low_ms == pytest.approx(750 / 1.0443, rel=0.002) and found.high_ms == pytest.approx(750 * 1.0443, rel=0.002)


@pytest.mark.parametrize("steps", [2, 4])
def test_period_of_several_steps_is_divided_by_their_number(steps: int) -> None:
    # The first of ``steps`` steps waits for 600 ms, the others only work: 60 ms each. Period: 600 + 60 × steps.
    period_ms = 600.0 + 60 * steps
    tooth = tooth_of(([0.66] + [0.06] * (steps - 1)) * 40, 0.059)
    assert tooth.period_s == pytest.approx(period_ms / 1e3, rel=0.003)
    found = evidence(law(1.03 * period_ms / steps, width=1.2), tooth)
    assert (found.ms, found.steps_per_period) == (pytest.approx(period_ms / steps, rel=0.003), steps)
    assert f"One period is {steps} steps" in found.notes[0]


def test_number_of_steps_is_not_guessed_from_a_wide_interval() -> None:
    # Four steps need an interval with high ÷ low below 5 ÷ 4. Otherwise a period could fit four steps and five.
    tooth = tooth_of(([0.66] + [0.06] * 3) * 40, 0.059)
    wide = law(1.03 * 840 / 4, width=1.3)
    assert evidence(wide, tooth) == wide


def test_period_that_is_no_whole_number_of_steps_is_noted() -> None:
    # A period of 750 ms is neither one nor two steps of 500 ms.
    found = evidence(law(500.0), tooth_of([0.75] * 40, 0.15))
    assert (found.ms, found.low_ms, found.high_ms, found.steps_per_period) == (500.0, law(500.0).low_ms, law(500.0).high_ms, 0)
    assert found.notes[:2] == law(500.0).notes and "no whole number of such steps" in found.notes[2]


def test_possible_alias_is_only_used_if_kernels_exclude_it() -> None:
    # NVML's windows may be shorter than the time between samples. At 100 ms, 1 ÷ (10 Hz − 1 ÷ 0.75 s) = 115 ms looks like 750 ms.
    tooth = tooth_of([0.75] * 40, 0.15, tiles=False)
    assert max(tooth.alias_periods_s) == pytest.approx(1 / (10 - 1 / 0.75), rel=0.01)
    assert evidence(law(780.0), tooth).steps_per_period == 1  # At least 684 ms, longer than any alias.
    short = law(125.0, width=1.15)  # 750 ms fit six steps of 125, and this interval, from 117 ms on, could also hold 115 ms.
    alias = replace(tooth, alias_periods_s=(0.118,))
    assert evidence(short, tooth).steps_per_period == 6
    assert evidence(short, alias) == short


def test_fast_steps_in_slow_samples_have_no_period() -> None:
    # Steps of 115.4 ms in samples of 100 ms look like 750 ms. Samples without gaps exclude that, so nothing is reported.
    tooth = tooth_of([1 / (10 - 1 / 0.75)] * 300, 0.02)
    assert tooth.period_s is None
    assert evidence(law(780.0), tooth) == law(780.0)


def test_few_periods_are_not_used() -> None:
    # Seven steps of 750 ms are fewer than eight periods.
    tooth = tooth_of([0.75] * 7, 0.15)
    assert evidence(law(780.0), tooth) == law(780.0)


def test_irregular_steps_are_not_used() -> None:
    # The usual step takes 0.5 s, one in eight takes 1.3 s: the mean is 0.6 s, and the most frequent time is not the mean.
    rng = np.random.default_rng(3)
    steps = rng.permutation([0.5] * 70 + [1.3] * 10).tolist()
    tooth = tooth_of(steps, 0.15)
    assert tooth.error_s is None
    assert evidence(law(600.0), tooth).steps_per_period == 0


def test_lower_bound_stays() -> None:
    bound = StepTimeEvidence("telemetry", None, 500.0, None, ("bound",))
    assert evidence(bound, tooth_of([0.75] * 40, 0.15)) == bound
