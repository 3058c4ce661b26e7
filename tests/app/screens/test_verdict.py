"""Tests of the Verdict screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support.module_trace import small_training
from tests.support.pages import charts, headline_of, numbers, opened, run_of, staircase_of, words_of
from tests.support.paths import RECORDINGS


def test_verdict_shows_the_busy_share_of_a_step(loop: str) -> None:
    test = opened("verdict", loop, numbers="true")
    text = words_of(test)
    # The run's step by telemetry: 702 of 1,027 µs. The profile's 70 % of 1.00 ms is in small print next to it.
    assert "The GPU is busy 68\u00a0% of each ≈\u00a01.03\u00a0ms step" in text
    assert "70\u00a0% as profiled" in text
    metrics = {m.label: m.value for m in test.metric}
    assert metrics["Step time"] == "1.03\u00a0ms"
    assert metrics["Tensor-core time"] == "86\u00a0%"  # 600 of 700 µs
    assert metrics["GPU busy"] == "68\u00a0%"
    bar, minute = charts(test)[:2]
    drawn = {trace["name"]: trace for trace in bar["data"]}
    parts = [float(numbers(trace["x"])[0]) for trace in drawn.values()]
    assert sum(parts) == pytest.approx(1.027, abs=1e-3)  # The parts add up to the run's step.
    assert minute["data"][0]["line"]["shape"] == "vh"  # A sample describes the window before it.


def test_an_address_with_selected_changes_opens_with_them(app_data: DataFolder) -> None:
    run = run_of(app_data, RECORDINGS / "mlp_eager" / "trace.json.gz", RECORDINGS / "mlp_eager" / "nvml.jsonl")
    drawn = staircase_of(opened("verdict", run))
    assert drawn is not None and drawn["choice"] == drawn["first"] == 3 and drawn["panorama"]["step"]
    names = [change["name"] for change in drawn["changes"]]
    for fixes, choice in ((drawn["changes"][1]["rule"], 2), ("none", 0), ("no-such-rule", 3)):
        test = opened("verdict", run, fixes=fixes, open="1")
        asked = staircase_of(test)
        assert asked is not None and (asked["choice"], asked["open"]) == (choice, 1)
        assert (names[1] in headline_of(test)) == (choice == 2)


def test_events_without_measurements_are_not_shown(app_data: DataFolder, tmp_path: Path) -> None:
    trace = small_training()
    trace.events.append({"ph": "s", "name": "ac2g", "cat": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 1.0})
    assert "not stored" not in words_of(opened("verdict", run_of(app_data, trace.write(tmp_path / "arrow.json"))))
    trace.events.append({"ph": "X", "name": "aten::add", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 2.0, "dur": -5})
    text = words_of(opened("verdict", run_of(app_data, trace.write(tmp_path / "negative.json"))))
    assert "1 thing to know about this recording" in text and "negative duration" in text and "not stored" not in text
