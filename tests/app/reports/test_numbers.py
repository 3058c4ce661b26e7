"""Tests of a run's readings as lines of a report."""

from sawtooth.app.reports.numbers import without_repeated_reasons


def test_a_reason_is_printed_once() -> None:
    why = "No sawtooth in SM activity: it varies, but not periodically."
    rows = [("Energy per step", why), ("Step", "776 ms")]
    assert without_repeated_reasons(rows, [("Sawtooth period", why)]) == [("Energy per step", "no value"), ("Step", "776 ms")]
    assert without_repeated_reasons(rows, []) == rows
