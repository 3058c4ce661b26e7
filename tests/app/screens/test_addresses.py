"""Tests of invalid numbers in an address, which anyone can put into a link."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from sawtooth.analysis.telemetry.attribution import process_ids
from sawtooth.app.page import staircase
from sawtooth.app.screens import live
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import three_steps
from tests.support.pages import opened, run_of, words_of

NONE = ["\u00b2", "\u0661\u00b2", "9" * 5000, "-1", "1e3", "", "nan", "x" * 10_000]


@pytest.mark.parametrize("asked", NONE)
def test_an_invalid_gpu_in_the_address_means_the_first(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setattr(live.st, "query_params", {"gpu": asked})
    assert live._gpu(SimpleNamespace(gpus={3: "first", 4: "second"})) == "first"  # type: ignore[arg-type]
    monkeypatch.setattr(live.st, "query_params", {"gpu": "4"})
    assert live._gpu(SimpleNamespace(gpus={3: "first", 4: "second"})) == "second"  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["nan", "inf", "-inf", "1e400", "-5", "0", "", "\u00b2", "1e300"])
def test_impossible_steps_or_prices_are_ignored(monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    monkeypatch.setattr(staircase.st, "session_state", {})
    monkeypatch.setattr(staircase.st, "query_params", {"steps": asked})
    assert staircase._number_entered("steps") is None
    monkeypatch.setattr(staircase.st, "query_params", {"steps": "250"})
    assert staircase._number_entered("steps") == 250


@pytest.mark.parametrize("asked", ["0" * 16, "no-run"])
def test_a_link_to_a_missing_run_selects_no_other(app_data: DataFolder, tmp_path: Path, asked: str) -> None:
    run_of(app_data, three_steps().write(tmp_path / "here.json"))
    test = opened("idle", asked)
    headline = next(body for element in test.main if "<h1" in (body := getattr(element.proto, "body", "")))
    assert "This server has no run" in headline
    shown = re.sub(r'href="[^"]*"', "", words_of(test))
    assert asked not in shown or asked == "0" * 16  # An invalid id is not repeated.
    assert test.sidebar.selectbox[0].value is None


def test_a_process_with_an_invalid_id_is_left_out() -> None:
    assert process_ids([("\u00b2",), ("9" * 5000,), ("12",), ("python",), (None,)]) == {12}
