"""Tests of ``sawtooth.toml``: the command line overrides the environment, which overrides the file.

Unknown settings are refused.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.app.cli import cli
from sawtooth.app.commands.settings_file import set_parser_defaults
from sawtooth.ingest.capture.commands import run_parser
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.schema import DataFolder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAWTOOTH_CONFIG", raising=False)
    monkeypatch.delenv("SAWTOOTH_DATA", raising=False)
    for name in ("of-file", "of-environment", "of-option"):
        DataFolder(tmp_path / name).create()
    return tmp_path


def checked(*arguments: str) -> str:
    """Return the data folder that ``sawtooth doctor`` checked."""
    result = CliRunner().invoke(cli, ["doctor", *arguments])
    return Path(json.loads(result.stdout)["folder"]).name


def test_the_command_line_comes_first_then_the_environment_then_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "sawtooth.toml").write_text('data = "of-file"\n[doctor]\njson = true\n')
    assert checked() == "of-file"
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    monkeypatch.setenv("SAWTOOTH_CONFIG", str(folder / "sawtooth.toml"))
    assert checked() == "of-file"  # A relative path starts at the file's folder.
    assert json.loads(CliRunner().invoke(cli, ["runs", "--json"]).stdout) == []
    assert CliRunner().invoke(cli, ["runs", "predictions", "--json"]).stdout == "[]\n"
    monkeypatch.setenv("SAWTOOTH_DATA", str(folder / "of-environment"))
    assert checked() == "of-environment"
    assert checked("--data", str(folder / "of-option")) == "of-option"
    monkeypatch.setenv("SAWTOOTH_CONFIG", "nowhere.toml")
    assert "nowhere.toml, which is not a file" in str(CliRunner().invoke(cli, ["runs"]).exception)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("data = ", "cannot be read as TOML"),
        ("[compares]", "cannot have 'compares'"),
        ("[doctor]\nwrong = 1", "[doctor] cannot have 'wrong'"),
        ("doctor = 1", "doctor must be a table"),
    ],
)
def test_a_wrong_settings_file_is_refused_with_a_sentence(folder: Path, text: str, sentence: str) -> None:
    (folder / "sawtooth.toml").write_text(text)
    error = CliRunner().invoke(cli, ["doctor"]).exception
    assert isinstance(error, UsageError) and sentence in str(error)


def test_a_file_cannot_open_a_server(folder: Path) -> None:
    (folder / "sawtooth.toml").write_text("[serve]\nno-token = true\n")
    error = CliRunner().invoke(cli, ["serve", "--sessions"]).exception
    assert isinstance(error, UsageError) and "[serve] cannot have 'no-token'" in str(error)


def parsed(text: str, *words: str) -> argparse.Namespace:
    Path("sawtooth.toml").write_text(text)
    parser = run_parser()
    set_parser_defaults(parser, "run")
    return parser.parse_args([*words, "train.py"])


def test_options_of_a_recording_can_come_from_the_file(folder: Path) -> None:
    text = '[run]\nsteps = 7\nafter = 2.5\nno-loader = true\noutput = "runs/a.sawtooth"\n'
    now = parsed(text, "--steps", "9")
    assert (now.steps, now.after, now.no_loader, now.output) == (9, 2.5, True, Path("runs/a.sawtooth"))
    with pytest.raises(UsageError, match="no-loader takes true or false"):
        parsed('[run]\nno-loader = "yes"\n')
    with pytest.raises(UsageError, match="steps takes a value"):
        parsed("[run]\nsteps = true\n")
