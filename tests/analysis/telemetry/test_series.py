"""Tests of telemetry series: folding by period, facts and the lowest section."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry import sparkline
from sawtooth.analysis.telemetry.clock import AS_RECORDED
from sawtooth.analysis.telemetry.series import TelemetrySeries, energy_of, facts, fold, lowest_stretch
from sawtooth.analysis.telemetry.signal.energy import Energy
from sawtooth.app.words import telemetry as words

BASE = 1_790_000_000_000_000_000  # ns


def sampled(tenths: NDArray[np.int64], value: NDArray[np.float64]) -> TelemetrySeries:
    """Return telemetry whose samples lie ``tenths`` of a second after BASE."""
    times = BASE + tenths * 100_000_000
    samples = pd.DataFrame({"time_ns": times, "util_pct": value})
    return TelemetrySeries(
        0, None, AS_RECORDED, TimelineSpan(BASE, int(times[-1]) + 1), samples, pd.DataFrame(), pd.DataFrame()
    )


def test_folding_aligns_periods_at_rising_edges() -> None:
    """Three of ten samples per second are high, so the fold is high for 0.3 s after the rise."""
    tenths = np.arange(400)
    table = fold(sampled(tenths, np.where(tenths % 10 < 3, 90.0, 5.0)), period_s=1.0, low=5.0, high=90.0, column="util_pct")
    at = {round(float(t), 1): float(m) for t, m in zip(table["after_s"], table["median"], strict=True)}
    assert at[0.0] == at[0.1] == at[0.2] == 90.0
    assert at[0.4] == at[0.8] == at[-0.1] == 5.0
    assert (table["p10"] <= table["p90"]).all()


def test_folding_does_not_copy_all_samples_for_each_rise() -> None:
    # A copy of 6,000 samples of 8 bytes (ten minutes at 10 Hz) for each of 1,200 rises would take 58 MB.
    tenths = np.arange(6000)
    telemetry = sampled(tenths, np.where(tenths % 5 < 2, 100.0, 0.0))
    tracemalloc.start()
    try:
        table = fold(telemetry, period_s=0.5, low=0.0, high=100.0, column="util_pct")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(table) and peak < 10_000_000


def test_sample_after_a_gap_has_the_weight_of_one_period() -> None:
    """One of seven samples is 100, the first after a gap of 96 periods, so the mean is 100 / 7."""
    result = facts(sampled(np.array([0, 1, 2, 3, 100, 101, 102]), np.array([0.0, 0, 0, 0, 100, 0, 0])), "util_pct")
    assert result["mean"] == pytest.approx(100 / 7)


def test_lowest_tenth_is_returned_only_if_it_is_a_dip() -> None:
    tenths = np.arange(100)
    found = lowest_stretch(sampled(tenths, np.where((tenths >= 40) & (tenths < 50), 20.0, 90.0)), "util_pct")
    assert found == (TimelineSpan(BASE + 40 * 100_000_000, BASE + 49 * 100_000_000), pytest.approx(20.0))
    assert lowest_stretch(sampled(tenths, np.where(tenths % 2, 85.0, 95.0)), "util_pct") is None
    assert lowest_stretch(sampled(tenths[:40], np.full(40, 90.0)), "util_pct") is None  # A tenth of 40 samples is too short.


def test_energy_is_counted_over_a_reset_or_computed_from_power() -> None:
    """300 W for 1,000 s with a gap of 500 s give 150 kJ by power.

    The counter has 300 kJ, across a reset and a wrong reading.
    """
    seconds = np.concatenate([np.arange(0, 250), np.arange(749, 1000)])
    by_power = sampled(10 * seconds, np.full(len(seconds), 90.0))
    by_power.samples["power_w"] = 300.0
    used = energy_of(by_power)
    assert used is not None and not used.counted and used.joules == pytest.approx(150_000, rel=0.01)
    assert words.energy(used) == "≈\u00a041.7\u00a0Wh used, estimated from power samples"
    by_counter = sampled(10 * seconds, np.full(len(seconds), 90.0))
    counter = 5e6 + 300.0 * seconds
    counter[seconds >= 900] = 300.0 * (seconds[seconds >= 900] - 899)
    counter[100] = 0.0
    by_counter.samples["energy_j"] = counter
    assert energy_of(by_counter) == (pytest.approx(300_000, rel=0.01), True)
    assert words.energy(Energy(7.2e6, True)) == "2.00\u00a0kWh used, measured by the GPU's energy counter"
    assert energy_of(sampled(np.arange(9), np.arange(9.0))) is None and words.energy(Energy(0.2, True)) is None


@pytest.mark.parametrize(("samples", "highest"), [(350, 100.0), (6000, 20.0)])
def test_a_panorama_shows_each_sample_of_a_short_recording_and_means_of_a_long_one(samples: int, highest: float) -> None:
    tenths = np.arange(samples)
    spans = sparkline.panorama(sampled(tenths, np.where(tenths % 10 == 3, 100.0, 0.0)), "util_pct")
    assert len(spans) <= sparkline.CELLS
    assert max(value or 0.0 for *_, value in spans) == pytest.approx(highest, abs=10.1 if highest < 100 else 0.0)
