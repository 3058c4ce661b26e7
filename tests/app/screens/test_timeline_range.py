"""Tests of the Timeline screen: its range, its telemetry and its run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop
from tests.support.pages import opened, run_of, words_of
from tests.support.sent_steps import written_out
from tests.support.telemetry_files import telemetry_file


def test_timeline_follows_the_address(loop: str) -> None:
    complete = opened("timeline", loop)
    # The whole recording has the Verdict's sentence; a part of it has its own.
    assert "The GPU works 0.70\u00a0ms of each ≈\u00a01.03\u00a0ms step</h1>" in words_of(complete)
    # The second step on the device lasts from 1740 to 2740 µs of the trace.
    near = opened("timeline", loop, t0="1.74", t1="2.74")
    assert "The GPU works 70\u00a0% of the 1.00\u00a0ms in view" in words_of(near)
    data = picture(near)
    assert data["place"] == {"t0": "1.74", "t1": "2.74"}
    assert [lane["label"] for lane in data["tracks"][0]["lanes"]][:2] == ["Lost time", "GPU stream 7"]
    assert (1_740_000, 2_740_000) in [(start, end) for start, end, *_ in written_out(data["steps"])]
    assert {"tensor_core_compute", "other_compute"} <= set(data["kinds"]["gpu"])


def picture(test: AppTest) -> dict[str, Any]:
    """Return what the page passes to the timeline's component."""
    (proto,) = (element.proto for element in test.main if "/timeline" in str(element.proto) and "tracks" in str(element.proto))
    return dict(json.loads(proto.json))


@pytest.mark.parametrize(
    "query", [{"t0": "nan", "t1": "x"}, {"t0": "9e99", "t1": "1e99"}, {"t0": "5", "t1": "-5"}, {"t0": "1"}]
)
def test_an_invalid_range_still_shows_the_timeline(loop: str, query: dict[str, str]) -> None:
    assert "The GPU works" in words_of(opened("timeline", loop, **query))


def test_telemetry_of_another_time_is_shown_next_to_the_lanes(app_data: DataFolder, tmp_path: Path) -> None:
    samples = telemetry_file(tmp_path / "t.jsonl", start_ns=BASE_NS - 60_000_000_000)
    run = run_of(app_data, matmul_loop().write(tmp_path / "t.json"), samples)
    text = words_of(opened("timeline", run))
    assert "before the trace" in text


def test_telemetry_of_the_same_time_is_aligned_with_the_lanes(loop: str) -> None:
    test = opened("timeline", loop)
    assert "not at the same time" not in words_of(test)
    assert {line["unit"] for line in picture(test)["lines"]} >= {"%"}


def test_a_link_into_another_run_keeps_its_place(loop: str, app_data: DataFolder, tmp_path: Path) -> None:
    # If a session's timeline last showed another run, the link's t0 and t1 were dropped, and the whole recording was
    # shown.
    test = opened("timeline", run_of(app_data, matmul_loop(steps=5).write(tmp_path / "other.json")))
    link = {"run": loop, "t0": "1.74", "t1": "2.74"}
    for key, value in link.items():
        test.query_params[key] = value
    words_of(test.run())
    assert {name: test.query_params[name] for name in link} == link


def test_runs_that_appear_in_the_list_open_no_page(loop: str, app_data: DataFolder, tmp_path: Path) -> None:
    """The browser reports the server's change of the list late.

    Right after an upload this opened the run without a request.
    """
    other = run_of(app_data, matmul_loop(steps=5).write(tmp_path / "other.json"))
    test = opened("runs", loop)
    del test.query_params["run"]
    test.session_state["run"] = other
    assert "Live, from the training machine" in words_of(test.selectbox(key="run_choice-0").set_value(other).run())


def test_another_run_selected_on_the_timeline_is_shown_completely(loop: str, app_data: DataFolder, tmp_path: Path) -> None:
    other = run_of(app_data, matmul_loop(steps=5).write(tmp_path / "other.json"))
    test = opened("timeline", loop, t0="1.74", t1="2.74")
    assert "The GPU works" in words_of(test.selectbox(key="run_choice-0").set_value(other).run())
    assert test.query_params["run"] == other
    assert "t0" not in test.query_params


def test_without_external_links_perfetto_is_not_offered(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from sawtooth.app.settings import settings

    monkeypatch.setenv("SAWTOOTH_NO_EXTERNAL", "1")
    settings.cache_clear()
    test = opened("timeline", loop)
    words_of(test)
    assert not [e for e in test.main if "perfetto" in str(e.proto).lower()]
    monkeypatch.delenv("SAWTOOTH_NO_EXTERNAL")
    settings.cache_clear()
    assert [e for e in opened("timeline", loop).main if "perfetto" in str(e.proto).lower()]
