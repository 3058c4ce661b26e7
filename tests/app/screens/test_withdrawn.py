"""Tests of the screens of a recording whose GPU records failed a check."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import charts, opened, run_of, words_of


@pytest.fixture
def half_lost(app_data: DataFolder, tmp_path: Path) -> str:
    trace = matmul_loop(5)
    kernels = [event for event in trace.events if event["cat"] == "kernel"]
    trace.events = [event for event in trace.events if event not in kernels[::2]]
    return run_of(app_data, trace.write(tmp_path / "t.json"))


@pytest.mark.parametrize("screen", ["work", "idle", "efficiency"])
def test_times_of_records_that_failed_a_check_are_hidden(half_lost: str, screen: str) -> None:
    test = opened(screen, half_lost)
    text = words_of(test)
    assert "GPU times of this recording cannot be trusted" in text and "How to record them" in text
    assert "records are missing" in text and not len(test.dataframe) and not charts(test)
    assert "never waits" not in text and "Steps are not marked" not in text


def test_bounds_of_records_that_failed_a_check_are_not_called_known(half_lost: str) -> None:
    known, _, unknown = words_of(opened("verdict", half_lost)).partition("What is known")[2].partition("What is not known")
    assert "≥" not in known and "SM clock" not in known and "Timeline" in known  # Without samples, the clock is assumed.
    assert "Step time" in unknown
