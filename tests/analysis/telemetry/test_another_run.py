"""Tests of telemetry far from a trace: it belongs to another run, and the text says how far."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.analysis.telemetry.run_telemetry import other_time_note

MINUTE_NS = 60_000_000_000


@pytest.mark.parametrize(
    ("minutes", "words"),
    [(1.02, "1 minute"), (1.5, "1.5 minutes"), (99.4, "99 minutes"), (99.7, "2 hours"), (6000, "4 days")],
)
def test_time_between_runs_has_no_exponent(minutes: float, words: str) -> None:
    sampled: Any = SimpleNamespace(first_ns=0, last_ns=0)
    begins = round(minutes * MINUTE_NS)
    assert (other_time_note(sampled, (begins, begins + 1)) or "").startswith(f"The telemetry ends {words} before the trace: ")
