"""Tests of the text of a change: step time before and after with ranges, and savings.

The savings are time and money.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from sawtooth.analysis.combined_changes import CombinedPrediction
from sawtooth.analysis.metrics.mfu import LOWER_BOUND
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.model import Finding
from sawtooth.app.words import savings
from tests.support.actions import act
from tests.support.run_results import run_of

# 312 → 26 ms on 8 GPUs: of a day eleven twelfths, 22 h, are saved, and 8 × 22 = 176 GPU-hours
TWELVE_TIMES = CombinedPrediction(before_ms=312.0, after_ms=26.0, mfu_before=0.005, gpus=8)


def lines(
    forecast: CombinedPrediction,
    steps: float | None = None,
    price: float | None = None,
    change: Finding | None = None,
) -> dict[str, str]:
    found = savings.lines(forecast, change, steps=steps, price_per_gpu_hour=price)
    return {label.replace("\u00a0", " "): value.replace("\u00a0", " ") for label, value in found}


def test_time_and_money_of_a_day_of_training() -> None:
    assert lines(TWELVE_TIMES) == {"a training that takes a day now": "24 → ≈ 2.00 h", "MFU": "0.50 % → ≈ 6.0 %"}
    found = lines(TWELVE_TIMES, price=3.0)
    assert found["saved per day on 8 GPUs"] == "≈ $ 528.00"


def test_savings_of_the_remaining_steps() -> None:
    found = lines(TWELVE_TIMES, steps=1e6, price=1.0)
    assert found["for 1.00 M steps"] == "86.7 → ≈ 7.22 h"
    assert found["saved on 8 GPUs"] == "≈ $ 635.56"  # 8 × (86.667 − 7.222)


def test_savings_have_the_range_of_the_gain() -> None:
    several = replace(TWELVE_TIMES, low_ms=20.8, high_ms=52.0)  # 14/15 and 5/6 of 192 GPU-hours are saved: 179.2 and 160.
    found = lines(several, price=3.0)
    assert found["saved per day on 8 GPUs"] == "$ 480.00 to $ 537.60"
    change = Finding(
        "a", "warning", "a", act("Do it."), "low", predicted_step_ms=26.0, predicted_low_ms=20.8, predicted_high_ms=52.0
    )
    assert lines(TWELVE_TIMES, price=3.0, change=change)["saved per day on 8 GPUs"] == "$ 480.00 to $ 537.60"
    perhaps_nothing = replace(change, predicted_high_ms=330.0)  # The step may also become longer.
    assert lines(TWELVE_TIMES, price=3.0, change=perhaps_nothing)["saved per day on 8 GPUs"] == "up to $ 537.60"
    open_ended = replace(change, predicted_high_ms=None)
    assert lines(TWELVE_TIMES, price=3.0, change=open_ended)["saved per day on 8 GPUs"] == "up to $ 537.60"


def test_a_slower_step_saves_nothing() -> None:
    slower = CombinedPrediction(before_ms=312.0, after_ms=325.0, mfu_before=None, gpus=1)
    assert lines(slower, price=3.0) == {"a training that takes a day now": "24 → ≈ 25.0 h"}


def test_savings_before_and_after_have_one_unit() -> None:
    fast = CombinedPrediction(before_ms=312.0, after_ms=25.0, mfu_before=None, gpus=1)
    assert lines(fast) == {"a training that takes a day now": "24 → ≈ 1.92 h"}  # Not 115 min, because the time now is in hours.
    assert lines(fast, steps=1e4) == {"for 10.0 k steps": "52.0 → ≈ 4.17 min"}


def test_an_indistinguishable_mfu_is_left_out() -> None:
    assert "MFU" not in lines(CombinedPrediction(before_ms=20.0, after_ms=10.0, mfu_before=2e-5, gpus=1))


@pytest.mark.parametrize(
    ("source", "under", "sure"),
    [("marks", "per step, measured: 131 to 166 ms", True), ("profile", "per step as profiled; the run's step 131 to 166 ms", True), ("telemetry", "per step, estimated: 131 to 166 ms", False)],
)  # fmt: skip
def test_a_step_is_shown_with_its_range_and_evidence(source: str, under: str, sure: bool) -> None:
    result = run_of(best_ms=148.0, source=source)
    result = replace(result, metrics={**result.metrics, "best_step_time_ms": Reading(148.0, low=131.0, high=166.0)})
    step = savings.step(result)
    assert step is not None and step.text.endswith("148\xa0ms")
    assert (step.under.replace("\xa0", " "), step.sure) == (under, sure)


def test_a_prediction_has_a_range_and_low_confidence_is_marked() -> None:
    change = Finding(
        "a", "warning", "a", act("Do it."), "low", predicted_step_ms=26.0, predicted_low_ms=20.5, predicted_high_ms=41.0
    )
    after = savings.after(TWELVE_TIMES, change)
    assert after == savings.Amount("≈\xa026.0\xa0ms", "predicted: 20.5 to 41.0\xa0ms", False)
    certain = replace(change, confidence="medium")
    assert savings.after(TWELVE_TIMES, certain).sure
    # Of 312 ms, so the change may gain nothing.
    assert not savings.after(TWELVE_TIMES, replace(certain, predicted_high_ms=311.0)).sure
    assert savings.after(TWELVE_TIMES, None).under == "predicted, range not known"
    several = replace(TWELVE_TIMES, low_ms=20.5, high_ms=41.0)  # The plan's step after several changes.
    assert savings.after(several, None).under.replace("\u00a0", " ") == "predicted: 20.5 to 41.0 ms"


def test_the_telemetry_period_is_shown_if_it_agrees_with_the_estimate():
    # For an estimate of 776 ms and a period of 752 ms both are stated. A period of two steps is not.
    run = run_of(best_ms=776.0)
    best = replace(run.lead.best, source="telemetry", reading=Reading(776.0, trust="caution", low=679.0, high=906.0))

    def with_rhythm(period_s):
        telemetry = SimpleNamespace(sawtooth=SimpleNamespace(period_s=period_s))
        return replace(
            run,
            ranks=[replace(run.lead, best=best, telemetry=telemetry)],
            lead=replace(run.lead, best=best, telemetry=telemetry),
        )

    assert savings.step_time_of_rhythm(with_rhythm(0.752)) == "telemetry's rhythm: 752\u00a0ms"
    assert savings.step_time_of_rhythm(with_rhythm(1.504)) is None
    assert savings.step_time_of_rhythm(with_rhythm(0.776)) is None
    assert savings.step_time_of_rhythm(with_rhythm(None)) is None


def test_a_forecast_has_an_mfu_only_if_most_flops_are_known() -> None:
    for known, mfu in ((0.02, None), (0.96, 0.2)):
        metrics = {"flop_coverage": Reading(known), "flops_per_step": Reading(1e12, notes=(LOWER_BOUND,))}
        assert savings.with_known_mfu(CombinedPrediction(2.0, 1.0, 0.1, 1), metrics).mfu == mfu, known
