"""Tests of the telemetry panel of the Verdict."""

from __future__ import annotations

from sawtooth.app.page.parts.telemetry_strip import average


def test_the_range_of_a_mean_contains_the_mean() -> None:
    """The mean lies within the stated range, even with a short gap (not "96 %, between 97 % and 99.9 %")."""
    named = average("GPU activity", 14_000_000_000, {"mean": 96.0, "p5": 97.0, "p95": 99.9})
    assert named.replace("\xa0", " ") == "Over 14.0 s GPU activity averages 96 %"
    named = average("GPU activity", 14_000_000_000, {"mean": 98.0, "p5": 97.0, "p95": 99.9})
    assert named.replace("\xa0", " ").endswith("averages 98 %, mostly between 97 % and 99.9 %")
