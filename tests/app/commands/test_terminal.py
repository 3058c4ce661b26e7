"""Tests of what commands print on a terminal: colour, progress, hostile names and Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.app.cli import main
from sawtooth.app.commands import inputs, output
from sawtooth.app.printable import json_text
from tests.support.chrome_trace import matmul_loop
from tests.support.command_line import run
from tests.support.paths import ROOT


def test_ctrl_c_is_a_clean_end() -> None:
    waits = "import sys, time; from sawtooth.app import cli as c; c.cli = lambda: (print('ready', flush=True), time.sleep(60)); c.main()"
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", waits],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGINT)
    _, on_stderr = child.communicate(timeout=60)
    assert (child.returncode, on_stderr) == (130, b"\nStopped.\n")


def test_a_terminal_shows_the_headline_in_colour_and_a_pipe_does_not(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(output, "sys", SimpleNamespace(stdout=terminal))
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output._emphasise("name\nheadline\nrest", 1) == "name\n\x1b[36m\x1b[1mheadline\x1b[0m\nrest"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output._emphasise("name\nheadline", 1) == "name\nheadline"
    monkeypatch.delenv("NO_COLOR")
    terminal.isatty = lambda: False
    assert output._emphasise("name\nheadline", 1) == "name\nheadline"


@pytest.mark.parametrize("terminal", [True, False])
def test_long_reading_shows_its_progress_on_a_terminal_and_nowhere_else(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with inputs.opened([str(traces / "below" / "second.json")], tmp_path / "data") as run:
        assert run.manifest.name == "second"
    answer = capsys.readouterr().err
    assert bool(re.search(r"\rsecond\.json: .* of .*, [\d,]+ events", answer)) == terminal
    assert terminal or not answer


HOSTILE = "k\x1b]0;own\x07\x1b[2J\u202e\x9b2J"


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    # The names are those of files and runs, and of their content, in sentences about omissions, lists, reports and JSON.
    folder, data = tmp_path / "in", str(tmp_path / "data")
    folder.mkdir()
    (folder / f"bad{HOSTILE}.json").write_text('{"traceEvents": []}')
    trace = matmul_loop(steps=6)
    trace.top["host_name"] = HOSTILE
    trace.write(folder / f"good{HOSTILE}.json")
    (folder / f"alone{HOSTILE}").mkdir()
    asked = [
        ("ingest", str(folder), "--name", HOSTILE),
        ("ingest", str(folder), "--json"),
        ("runs",),
        ("runs", "--json"),
        ("sweep", HOSTILE),
    ]
    asked += [("report", HOSTILE, "--format", form) for form in ("text", "json")]
    asked += [("audit", HOSTILE), ("compare", HOSTILE, HOSTILE), ("report", str(folder / f"alone{HOSTILE}")), ("doctor",)]
    for arguments in asked:
        result = run(*arguments, "--data", data)
        answer = result.output + (
            str(result.exception) if result.exception and not isinstance(result.exception, SystemExit) else ""
        )
        assert not {sign for sign in result.output if unicodedata.category(sign) in ("Cc", "Cf") and sign != "\n"}, arguments
        assert answer


def test_an_error_shows_a_name_without_control_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["sawtooth", "export", f"no{HOSTILE}", "--data", str(tmp_path)])
    with pytest.raises(SystemExit):
        main()
    answer = capsys.readouterr().err
    assert answer.endswith("\n") and answer.strip().isprintable()


def test_json_contains_the_same_names_escaped() -> None:
    assert json.loads(json_text({"a": HOSTILE + "é😀"})) == {"a": HOSTILE + "é😀"}
    assert "é😀" in json_text(["é😀"]) and json_text([HOSTILE]).isprintable()
