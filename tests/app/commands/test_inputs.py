"""Tests of the inputs of commands: files, folders, names of runs and output suffixes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sawtooth.app.cli import main
from sawtooth.ingest.errors import NotFoundError, UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support.command_line import run


def test_a_folder_means_all_files_in_it_and_each_run_is_reported(traces: Path, tmp_path: Path) -> None:
    found = run("report", str(traces), "--each", "--format", "json", "--data", str(tmp_path / "d"))
    assert {r["run"]["name"] for r in json.loads(found.stdout)} == {"first", "second"}
    refused = run("report", str(traces))
    assert isinstance(refused.exception, UsageError)
    assert "are 2 runs (" in str(refused.exception) and "Add --each for all of them, or give" in str(refused.exception)
    refused = run("report", str(traces), "--each", "-o", str(tmp_path / "r.html"), "--data", str(tmp_path / "none"))
    assert isinstance(refused.exception, UsageError) and "an HTML report is about one run" in str(refused.exception)
    assert not (tmp_path / "none").exists()  # The error comes before anything is read.


def test_the_suffix_decides_the_format(traces: Path, tmp_path: Path) -> None:
    trace = str(traces / "first.json")
    for name, begins in (("r.json", "{"), ("r.md", "<!-- sawtooth"), ("r.html", "<!doctype"), ("r.txt", "first")):
        out = tmp_path / name
        assert run("report", trace, "-o", str(out)).exit_code == 0
        assert out.read_text(encoding="utf-8").lstrip().startswith(begins)
    refused = run("report", trace, "--out", str(tmp_path / "r.pdf"))
    assert isinstance(refused.exception, UsageError) and "--format" in str(refused.exception)


def test_a_folder_with_nothing_readable_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty" / ".hidden").mkdir(parents=True)
    (tmp_path / "empty" / ".hidden" / "x.json").write_text("{}")
    for command in ("ingest", "report"):
        refused = run(command, str(tmp_path / "empty"), "--data", str(tmp_path / "data"))
        assert isinstance(refused.exception, UsageError) and "neither a trace nor telemetry" in str(refused.exception)


def test_several_recordings_per_side_may_be_in_one_folder(traces: Path, tmp_path: Path) -> None:
    found = run("compare", str(traces), str(traces / "first.json"), "--format", "json", "--data", str(tmp_path / "d"))
    assert found.exit_code == 0, found.exception
    assert len(json.loads(found.stdout)["a"]["runs"]) == 2


def test_an_ambiguous_name_lists_the_runs(traces: Path, data: str) -> None:
    assert run("ingest", str(traces / "below" / "second.json"), "--name", "My first run", "--data", data).exit_code == 0
    refused = run("report", "my first run", "--data", data)
    assert isinstance(refused.exception, UsageError)
    assert "names 2 runs" in str(refused.exception) and "more characters of the id" in str(refused.exception)


def test_one_unreadable_file_does_not_affect_the_others(traces: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("no trace")
    done = run("ingest", str(traces / "first.json"), str(bad), "--data", str(tmp_path / "data"))
    assert done.exit_code == 2
    assert "Left out bad.json: " in done.output and "first: first.json (trace)" in done.output
    assert [m.name for m in DataFolder(tmp_path / "data").manifests()] == ["first"]


def test_an_unknown_name_is_answered_with_a_similar_one(data: str, tmp_path: Path) -> None:
    for command in (["report", "my frist run"], ["runs", "rename", "my frist run", "x"], ["export", "my frist run"]):
        answer = str(run(*command, "--data", data).exception)
        assert "Neither a run nor a file is called 'my frist run'. Did you mean my  first run?" in answer
        assert f"sawtooth runs lists the 1 run in {data}." in answer
    answer = str(run("report", "anything", "--data", str(tmp_path / "new")).exception)
    assert "no run in" in answer and "sawtooth ingest FILE" in answer


def test_an_error_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.json").write_bytes(b"")
    monkeypatch.setattr(sys, "argv", ["sawtooth", "ingest", str(tmp_path / "empty.json"), "--data", str(tmp_path / "data")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("sawtooth: empty.json: The file is empty (0 bytes).")


def test_doctor_creates_no_folder(tmp_path: Path) -> None:
    refused = run("doctor", "--data", str(tmp_path / "none"))
    assert isinstance(refused.exception, NotFoundError) and "There is no data folder" in str(refused.exception)
    assert not (tmp_path / "none").exists()
