"""Tests of runs that are edited, deleted or cannot be analysed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from streamlit.testing.v1 import AppTest

from sawtooth.app.jobs import child as ingest_job
from sawtooth.app.jobs.job_files import JobFile, JobRequest
from sawtooth.app.page.runs.editing import edited
from sawtooth.app.runs import card as run_card
from sawtooth.app.runs.card import Card
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.manifests import edit_run
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import run_of, words_of
from tests.support.paths import ROOT


def deletion_page() -> None:
    import streamlit as st

    from sawtooth.app.page import frame
    from sawtooth.app.page.runs import editing as run_edit

    known = {m.id: m for m in frame.data_folder().manifests()}
    if st.query_params["run"] in known:
        run_edit.deletion(known[st.query_params["run"]])


def test_a_run_is_deleted_only_after_confirmation(four: list[str], app_data: DataFolder) -> None:
    test = AppTest.from_function(deletion_page, default_timeout=60)
    test.query_params["run"] = four[0]
    test.run()
    assert test.button(f"delete-{four[0]}").disabled
    test.checkbox(f"sure-{four[0]}").check().run()
    test.button(f"delete-{four[0]}").click().run()
    assert [m.id for m in app_data.manifests()] == four[:0:-1]


def editing_page() -> None:
    import streamlit as st

    from sawtooth.app.page import frame
    from sawtooth.app.page.runs.editing import edit

    if "opened" not in st.session_state:
        st.session_state["opened"] = frame.data_folder().read_manifest(st.query_params["run"])
    edit(st.session_state["opened"])


def test_saving_keeps_concurrent_changes(four: list[str], app_data: DataFolder) -> None:
    test = AppTest.from_function(editing_page, default_timeout=60)
    test.query_params["run"] = four[0]
    test.run()
    edit_run(app_data, four[0], lambda now: msgspec.structs.replace(now, notes="meanwhile", tags=[*now.tags, "late"]))
    test.text_input[0].input("typed")
    next(button for button in test.button if button.label == "Save").click().run()
    run = app_data.read_manifest(four[0])
    assert (run.name, run.notes, run.tags) == ("typed", "meanwhile", ["nightly", "late"])
    edited_again = edited(run, run, "typed", "late", "their own")
    assert (edited_again.notes, edited_again.tags) == ("their own", ["late"])


def test_a_run_that_cannot_be_analysed_does_not_affect_other_cards(
    app_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = [matmul_loop(step_us=us).write(tmp_path / f"run{us}.json") for us in (1000, 1100, 1200)]
    three = [run_of(app_data, trace) for trace in traces]  # Child processes analyse the runs of a longer list.

    def card_of(manifest: Manifest, library: object) -> Card:
        if manifest.id == three[0]:
            raise ZeroDivisionError
        return made(manifest, library)

    made = run_card.card_of
    monkeypatch.setattr(run_card, "card_of", card_of)
    test = AppTest.from_file(str(ROOT / "app" / "dashboard.py"), default_timeout=60)
    test.run()
    assert {box.key for box in test.checkbox} == {f"pick-{run}" for run in three}
    assert "Analysing this run failed" in words_of(test)
    assert "This page failed" not in words_of(test)


def test_a_run_that_cannot_be_analysed_is_reported_and_others_are_shown(
    app_data: DataFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [matmul_loop(step_us=us).write(tmp_path / f"run{us}.json") for us in (1000, 1200)]
    files = [JobFile(str(path), path.name, path.stat().st_size) for path in paths]
    failing = iter([True, False])
    store_analyses = ingest_job._store_analyses

    def _store_analyses(folder: DataFolder, runs: list[str]) -> None:
        if next(failing):
            raise ZeroDivisionError
        store_analyses(folder, runs)

    monkeypatch.setattr(ingest_job, "_store_analyses", _store_analyses)
    outcome = ingest_job.run(JobRequest(str(app_data.root), files, separate=True), lambda progress: None)
    assert len(outcome.run_ids) == 2 and not outcome.sentence
    assert len(outcome.notices) == 1 and "its analysis failed" in outcome.notices[0]
    assert len(list(app_data.derived.glob("*.card.msgpack"))) == 1
