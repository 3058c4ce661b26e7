"""Tests of every screen of a run, with data and with each part missing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.derive.screen_sums import sums_file
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop
from tests.support.pages import charts, only_run, opened, run_of, words_of
from tests.support.telemetry_files import telemetry_file

SCREENS = ("verdict", "timeline", "idle", "work", "efficiency", "ranks", "memory", "telemetry")


@pytest.mark.parametrize("screen", ["timeline", "work", "efficiency"])
def test_a_screen_stores_missing_sums_of_a_large_recording(
    screen: str, loop: str, app_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sawtooth.analysis.derive.screen_sums.MAX_EVENTS_WITHOUT_SUMS", 0)
    (trace,) = app_data.read_manifest(loop).traces
    assert words_of(opened(screen, loop))
    assert sums_file(ensure_derived(app_data, trace.id)).exists()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_telemetry_alone(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    text = words_of(opened(name, run_of(app_data, telemetry_file(tmp_path / "t.jsonl"))))
    if name != "telemetry":
        assert "telemetry and no trace" in text, text


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_a_trace_of_the_host_only(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    trace = ChromeTrace()
    trace.step(1, 0, 100)
    trace.op("aten::mm", 10, 50)
    text = words_of(opened(name, run_of(app_data, trace.write(tmp_path / "cpu.json"))))
    if name != "telemetry":
        assert "No GPU work is recorded" in text
        assert "Nothing of this kind is in view" not in text  # The timeline opens a list that is not empty.
        assert "ProfilerActivity.CUDA" in "\n".join(code.value for code in opened(name, only_run(app_data)).code)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_no_steps(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    trace = matmul_loop()
    trace.events = [e for e in trace.events if not e["name"].startswith("ProfilerStep")]
    text = words_of(opened(name, run_of(app_data, trace.write(tmp_path / "t.json"))))
    if name == "timeline":
        assert re.search(r"The GPU works [\d.]+.ms of the recorded", text)
    if name == "verdict":
        assert "no steps" in text
        assert "of the recorded time" in text


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_no_shapes(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    trace = matmul_loop()
    for event in trace.events:
        event["args"].pop("Input Dims", None)
        event["args"].pop("Input type", None)
    trace.top["record_shapes"] = 0
    run = run_of(app_data, trace.write(tmp_path / "t.json"))
    words_of(opened(name, run))
    if name == "work":
        assert "The trace has no shapes" in words_of(opened(name, run, by="Operator", by_shape="true"))


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_hostile_names_stay_text(app_data: DataFolder, tmp_path: Path, name: str) -> None:
    evil = '<img src=x onerror=alert(1)>![](http://evil.example/x.png) %{x} <a href="http://evil.example">k</a>'
    trace = matmul_loop()
    for event in trace.events:
        if event["cat"] in ("kernel", "cpu_op"):
            event["name"] = evil
    run = run_of(app_data, trace.write(tmp_path / "t.json"))
    test = opened(name, run)
    words_of(test)
    for element in test.main:
        body = str(getattr(element.proto, "body", ""))
        assert "<img src=x" not in body
        assert '<a href="http' not in body, "links of our own stay on this server"
    for chart in charts(test):
        drawn = [{key: value for key, value in trace.items() if key not in ("ids", "parents")} for trace in chart["data"]]
        assert "<img" not in json.dumps(chart | {"data": drawn})
        assert "<a href" not in json.dumps(chart | {"data": drawn})
        assert not any("evil" in str(trace.get("hovertemplate")) for trace in chart["data"])


@pytest.mark.sweep(4)
@pytest.mark.parametrize("name", SCREENS)
def test_every_chart_has_a_text_alternative(loop: str, name: str) -> None:
    test = opened(name, loop)
    for chart in test.get("plotly_chart"):
        assert len(chart.proto.alt) > 20
