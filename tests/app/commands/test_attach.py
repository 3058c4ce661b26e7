"""Tests of `sawtooth attach` as a whole: the same verdict as `sawtooth run`.

What cannot be recorded gives an exit code.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer

from sawtooth.app.commands import run
from sawtooth.app.commands.attach import attach
from sawtooth.ingest.capture.attach import command
from sawtooth.ingest.capture.attach.attach import AttachResult


def _called(*words: str) -> int:
    with pytest.raises((SystemExit, typer.Exit)) as ended:
        attach(cast(typer.Context, SimpleNamespace(args=list(words))))
    error = ended.value
    return error.exit_code if isinstance(error, typer.Exit) else int(error.code or 0)


def test_the_recording_is_explained_and_missing_data_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    explained: list[Any] = []
    launched = AttachResult(
        0, tmp_path / "a.sawtooth", ["at once", "at the end"], frozenset({"at once"}), {4711: ["a handler"]}
    )
    monkeypatch.setattr(command, "record", lambda arguments: launched)
    monkeypatch.setattr(run, "_explain", lambda *given: explained.append(given) or "loop-1")
    assert _called("4711", "--data", str(tmp_path)) == 0
    assert explained == [(launched, tmp_path)]
    assert tuple(capsys.readouterr()) == ("", "sawtooth: at the end\n")
    assert _called("4711", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "run": "loop-1",
        "file": str(tmp_path / "a.sawtooth"),
        "stays": {"4711": ["a handler"]},
        "missing": ["at once", "at the end"],
    }


def test_a_missing_process_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _called("4194999") == 2
    assert "There is no process 4194999." in capsys.readouterr().err
