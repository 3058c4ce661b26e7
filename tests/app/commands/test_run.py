"""Tests of `sawtooth run` as a whole: the verdict follows the training's own output.

The exit code is always the training's.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from sawtooth.app.commands import run
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.reports import brief
from sawtooth.app.served_address import ServedAddress, keep_address
from sawtooth.ingest import children
from sawtooth.ingest.capture.command.launch import LaunchResult
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.capture.packing import pack_run
from sawtooth.ingest.runs.bundle import export_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import RECORDINGS


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = DataFolder(tmp_path / "recorded").create()
    files = [(path, path.name) for path in sorted((RECORDINGS / "gpt_small").glob("*.json*")) if path.name != "truth.json"]
    export_runs(folder, [ingest_into_runs(folder, files).runs[0].id], tmp_path / "run.sawtooth")
    return tmp_path / "run.sawtooth"


def test_the_verdict_has_few_lines_and_the_address_of_the_page(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.explain(LaunchResult(0, bundle), tmp_path / "data")
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 6
    assert lines[-2] == f"sawtooth: recorded into {bundle}."
    assert any(line.startswith("sawtooth: Step ") for line in lines)
    assert "http://127.0.0.1:8501/verdict?run=" in lines[-1] and "after `sawtooth serve --data" in lines[-1]
    monkeypatch.setattr(ServedAddress, "answers", lambda served, within_s: True)
    with keep_address(DataFolder(tmp_path / "data"), ServedAddress("0.0.0.0", 8642)):
        run.explain(LaunchResult(0, bundle), tmp_path / "data")
    assert capsys.readouterr().err.splitlines()[-1] == lines[-1].partition("   (")[0].replace("8501", "8642")


def test_a_step_in_the_headline_is_not_repeated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = MarkWriter(tmp_path / "marks.jsonl", monotonic_ns=iter(range(0, 10**12, 20_000_000)).__next__)
    for index in range(60):
        writer.mark(index)
    writer.close()
    about = {"source_name": "marks.jsonl", "kind": "marks"}
    pack_run(tmp_path / "run.sawtooth", {"name": "ended", "notes": "", "facts": {}}, [(tmp_path / "marks.jsonl", about)])
    run.explain(LaunchResult(1, tmp_path / "run.sawtooth"), tmp_path / "data")
    answer = capsys.readouterr().err
    assert "A step takes 20.0" in answer and "the mean of 59 steps" in answer
    assert "Step 20.0" not in answer


def test_a_bug_is_reported_as_a_sentence(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brief, "lines", lambda result: 1 / 0)
    run.explain(LaunchResult(0, bundle), tmp_path / "data")
    assert "the analysis failed (ZeroDivisionError" in capsys.readouterr().err


def test_without_analysis_packages_the_training_is_still_recorded(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sawtooth.app.jobs.ingest_files", None)
    run.explain(LaunchResult(0, bundle), None)
    assert f"recorded into {bundle}. " in (answer := capsys.readouterr().err) and "is not installed here" in answer


def test_options_after_the_command_belong_to_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print(sys.argv[1:]); sys.exit(5)")
    command = children.command("sawtooth", "run", "--no-sample", "train.py", "--data", "x", "--help")
    done = subprocess.run(command, cwd=tmp_path, env=children.environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (5, "['--data', 'x', '--help']\n"), done.stderr
