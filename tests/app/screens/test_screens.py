"""Tests of every screen in every empty state: it says what is missing and what to do."""

import re
from itertools import count
from pathlib import Path

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.page import frame
from sawtooth.app.places import SCREENS, screen_named
from sawtooth.app.reports.html import run_html
from sawtooth.app.reports.text import markdown, text
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.manifest import Manifest, RecordingRef, new_manifest
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.pages import opened_at, run_of, text_of
from tests.support.paths import RECORDINGS, ROOT

BUILT = [screen.name for screen in SCREENS]


def _fine(test: AppTest) -> str:
    text = text_of(test)
    assert "This page failed" not in text, text
    assert "Traceback" not in text
    assert text.strip(), "the page is blank"
    return text


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", BUILT)
def test_without_any_run(app_data: DataFolder, name: str) -> None:
    text = _fine(opened_at(name))
    if screen_named(name).needs_run:
        assert "no run yet" in text


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", BUILT)
def test_with_a_link_to_a_run_that_is_not_here(app_data: DataFolder, name: str) -> None:
    text = _fine(opened_at(name, run="0123456789abcdef"))
    if screen_named(name).needs_run:
        assert "no run" in text


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", BUILT)
def test_with_a_run_whose_recording_is_gone(app_data: DataFolder, name: str) -> None:
    manifest = _missing(app_data)
    _fine(opened_at(name, run=manifest.id))


def _missing(data: DataFolder) -> Manifest:
    manifest = new_manifest(
        [RecordingRef(id="00112233445566aa", kind="trace", source_name="gone.json.gz")], "a run without its file"
    )
    data.write_manifest(manifest)
    return manifest


def test_a_damaged_manifest_does_not_hide_other_runs(app_data: DataFolder) -> None:
    manifest = _missing(app_data)
    (app_data.runs / "ffffffffffffffff.json").write_text("{damaged")
    text = _fine(opened_at("runs", run=manifest.id))
    assert "1 run" in text


def test_the_address_chooses_the_run_and_the_newest_is_the_default(app_data: DataFolder) -> None:
    old = _missing(app_data)
    newer = Manifest(id="a" * 16, name="newer", recordings=[], created_ns=old.created_ns + 1)
    app_data.write_manifest(newer)
    assert opened_at("runs").session_state["run"] == newer.id
    assert opened_at("runs", run=old.id).session_state["run"] == old.id


def test_a_screen_that_fails_shows_one_sentence_and_no_path(app_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError(f"secret in {ROOT}")

    monkeypatch.setattr(frame, "data_folder", broken)
    text = text_of(opened_at("runs"))
    assert "This page failed" in text and str(ROOT) not in text


def test_the_dashboard_has_at_most_40_lines() -> None:
    assert len((ROOT / "app" / "dashboard.py").read_text().splitlines()) <= 40


def test_the_navigation_lists_five_places_on_every_page_and_a_menu(app_data: DataFolder) -> None:
    _missing(app_data)
    for name in ("runs", "idle", "compare", "sql"):
        sidebar = opened_at(name).sidebar
        assert [link.proto.label for link in sidebar.get("page_link")] == [
            "Runs", "Verdict", "Timeline", "Work", "Compare", "SQL", "Reference",
        ]  # fmt: skip
        assert [box.label for box in sidebar.selectbox] == ["Run"]


def test_a_run_selected_in_the_list_opens_its_verdict(app_data: DataFolder) -> None:
    old = _missing(app_data)
    app_data.write_manifest(Manifest(id="a" * 16, name="newer", recordings=[], created_ns=old.created_ns + 1))
    test = opened_at("runs")
    assert test.sidebar.selectbox[0].value == "a" * 16
    test.sidebar.selectbox[0].set_value(old.id).run()
    assert test.query_params["run"] == old.id and "runs on this machine" not in text_of(test)


def test_a_place_shows_its_views_as_links_and_marks_the_empty_ones(app_data: DataFolder) -> None:
    run = _missing(app_data).id
    row = next(body for body in _bodies(opened_at("idle", run=run, device="0", cause="data_wait")) if "st-views" in body)
    assert f'href="/timeline?run={run}&amp;device=0"' in row  # Only Idle shows the cause.
    assert re.findall(r'<a href="/timeline\?view=idle[^"]*" aria-current="page">Idle</a>', row)
    assert row.count("aria-current") == 1
    assert re.findall(r'title="Empty: this run has (.*?)">(\w+)<', row) == [("no telemetry", "Telemetry")]
    assert "Ranks" not in row  # A single rank can never have this screen.
    assert not [body for body in _bodies(opened_at("compare")) if "st-views" in body]


def _bodies(test: AppTest) -> list[str]:
    return [str(getattr(element.proto, "body", "")) for element in test.main]


def test_a_screen_without_data_is_dimmed(app_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, other, nvml = (
        RecordingRef(id=f"{i:016x}", kind=kind, source_name="x") for i, kind in enumerate(("trace", "trace", "telemetry"))
    )
    cases: tuple[tuple[list[RecordingRef], str | None, set[str]], ...] = (
        ([trace], None, {"telemetry", "ranks"}),
        ([trace], "f" * 16, {"telemetry"}),  # One opened trace of a job whose summaries have a map of ranks.
        ([trace, other, nvml], None, set()),
    )
    for recordings, summaries, empty in cases:
        manifest = msgspec.structs.replace(new_manifest(recordings, "a run"), summaries=summaries)
        app_data.write_manifest(manifest)
        monkeypatch.setattr(frame.st, "session_state", {"run": manifest.id})
        monkeypatch.setattr(frame, "data_folder", lambda: app_data)
        assert set(frame.empty_screens()) == empty


def test_screens_of_the_gpu_are_dimmed_for_a_run_without_gpu_work(
    app_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = ChromeTrace()
    trace.step(1, 0, 100)
    trace.op("aten::mm", 10, 50)
    run = run_of(app_data, trace.write(tmp_path / "cpu.json"))
    worked = opened_at("verdict", run=run).session_state["gpu_worked"]
    monkeypatch.setattr(frame.st, "session_state", {"run": run, "gpu_worked": worked})
    assert not frame.remember_gpu_work(run, worked=False)  # The answer is known, so nothing is drawn again.
    assert frame.remember_gpu_work(run, worked=True) and frame.remember_gpu_work(run, worked=False)
    dimmed = frame.empty_screens()
    assert {"idle", "work", "efficiency", "memory"} <= set(dimmed)
    assert not set(dimmed) & {"verdict", "timeline", "sql", "compare"}


def test_facts_from_the_recorder_are_not_requested_again(app_data: DataFolder, tmp_path: Path) -> None:
    # `sawtooth run` records a GPU if there is one, and knows why there is no profile.
    trace = ChromeTrace()
    trace.step(1, 0, 100)
    trace.op("aten::mm", 10, 50)
    run = run_of(app_data, trace.write(tmp_path / "cpu.json"))
    assert "ProfilerActivity.CUDA" in opened_at("idle", run=run).code[0].value
    _noted(app_data, run, "Recorded by `sawtooth run train.py`.")
    recorded = opened_at("idle", run=run)
    assert "This training ran on the CPU" in _fine(recorded) and not recorded.code

    clock = count(0, 10**7)
    writer = MarkWriter(tmp_path / "marks.jsonl", wall_ns=lambda: 10**18, monotonic_ns=lambda: next(clock))
    for step in range(40):
        writer.mark(step)
    writer.close()
    marked = run_of(app_data, tmp_path / "marks.jsonl")
    assert "The profile was turned off, or the loop ended" in _fine(opened_at("verdict", run=marked))
    failed = "The command ended with exit code 1 after 40 steps, before a profile was taken."
    _noted(app_data, marked, f"Recorded by `sawtooth run train.py`.\n{failed}")
    shown = _fine(opened_at("verdict", run=marked))
    assert shown.count(failed) == 1 and "turned off" not in shown


def test_the_verdict_of_a_failed_training_reports_the_failure(app_data: DataFolder) -> None:
    # The profile of a failed training looks like that of any other run.
    run = run_of(app_data, RECORDINGS / "gpt_small" / "trace.json.gz")
    failed = "The command ended with exit code 137 after 262 steps."
    _noted(app_data, run, f"Recorded by `sawtooth run train.py`.\n{failed}")
    assert _fine(opened_at("verdict", run=run)).count(failed) == 1
    result = analyse(app_data.read_manifest(run), Library(app_data))
    assert [face(result).count(failed) for face in (text, markdown, run_html)] == [1, 1, 1]


def _noted(data: DataFolder, run: str, notes: str) -> None:
    data.write_manifest(msgspec.structs.replace(data.read_manifest(run), notes=notes))


def test_the_timeline_of_a_run_without_gpu_work_lists_host_events(app_data: DataFolder, tmp_path: Path) -> None:
    trace = ChromeTrace()
    trace.step(1, 0, 100)
    trace.op("aten::mm", 10, 50)
    test = opened_at("timeline", run=run_of(app_data, trace.write(tmp_path / "cpu.json")))
    assert "Nothing of this kind is in view" not in _fine(test)
    assert not test.tabs
    assert "aten::mm" in list(test.dataframe[0].value["short"])
