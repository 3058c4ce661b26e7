"""Tests of quantities that stay the same: a line of text replaces their panels."""

from __future__ import annotations

import pandas as pd

from sawtooth.analysis.tables.timeline import TimelineSpan
from sawtooth.analysis.telemetry.clock import AS_RECORDED
from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.app.charts.constant_quantities import constant, drawn, in_words


def sampled(*throttled: tuple[int, int, str], **samples: list[float]) -> TelemetrySeries:
    ranges = pd.DataFrame(list(throttled), columns=["start_ns", "end_ns", "reason"])
    return TelemetrySeries(
        device=0, name=None, clock=AS_RECORDED, span=TimelineSpan(0, 3), samples=pd.DataFrame({"time_ns": [1, 2, 3], **samples}),
        gaps=ranges.head(0), throttles=ranges,
    )  # fmt: skip


def test_a_constant_quantity_is_a_line_of_text() -> None:
    telemetry = sampled(util_pct=[50, 50, 50], power_w=[99, 99, 99], clock_sm_mhz=[1980, 1980, 1980], temp_c=[40, 40, 41])
    assert constant(telemetry) == ["clock_sm_mhz"]  # a constant activity or power stays a panel
    assert (
        in_words(telemetry, ["clock_sm_mhz"]).replace("\u2009", " ").replace("\u00a0", " ") == "Constant: SM clock 1,980 MHz."
    )
    assert "clock_sm_mhz" not in drawn(["clock_sm_mhz"]) and "temp_c" in drawn(["clock_sm_mhz"])
    assert in_words(telemetry, []) == ""


def test_the_clock_is_drawn_if_a_finding_or_throttling_is_about_it() -> None:
    clock: list[float] = [1980, 1980, 1980]
    assert constant(sampled(clock_sm_mhz=clock), ["clock_sm_mhz"]) == []
    assert constant(sampled((1, 2, "power cap"), clock_sm_mhz=clock)) == []
