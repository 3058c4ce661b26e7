"""Tests of runs from a command's own files: the next command on a file uses the stored result.

It gives the same answer.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.app.cli import cli
from sawtooth.app.commands import inputs, temporary_runs
from tests.support.chrome_trace import matmul_loop


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return matmul_loop().write(tmp_path / "trace.json")


def report(*files: Path, data: Path) -> str:
    result = CliRunner().invoke(cli, ["report", *map(str, files), "--data", str(data), "--format", "json"])
    assert result.exit_code == 0, result.output
    return str(result.stdout)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counted: list[int] = []

    def ingest_into_runs(*args: object, **options: object) -> object:
        counted.append(1)
        return real(*args, **options)  # type: ignore[arg-type]

    real = inputs.ingest_into_runs
    monkeypatch.setattr(inputs, "ingest_into_runs", ingest_into_runs)
    return counted


def test_the_second_report_of_a_file_comes_from_the_cache(tmp_path: Path, trace: Path, reads: list[int]) -> None:
    folder = tmp_path / "data"
    first = report(trace, data=folder)
    assert report(trace, data=folder) == first
    assert len(reads) == 1
    assert not list((folder / "runs").iterdir())  # The temporary run is not a run of the folder.
    renamed = trace.rename(tmp_path / "after.json")
    assert report(renamed, data=folder) != first  # The run is called after its file.
    renamed.write_bytes(renamed.read_bytes() + b"\n")
    report(renamed, data=folder)
    assert len(reads) == 3


def test_the_cached_report_repeats_what_was_left_out(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "both").mkdir()
    shutil.copy(trace, tmp_path / "both" / "trace.json")
    (tmp_path / "both" / "notes.json").write_text("{}", encoding="utf-8")
    outputs = [
        CliRunner().invoke(cli, ["report", str(tmp_path / "both"), "--data", str(tmp_path / "data")]).stderr for _ in range(2)
    ]
    assert "Left out notes.json" in outputs[0] and outputs[0] == outputs[1]


def test_a_damaged_cached_report_is_made_again(tmp_path: Path, trace: Path, reads: list[int]) -> None:
    folder = tmp_path / "data"
    first = report(trace, data=folder)
    remaining = next((folder / temporary_runs.CACHE_FOLDER).iterdir())
    for manifest in (remaining / "runs").iterdir():
        manifest.write_bytes(b"{}")
    assert report(trace, data=folder) == first
    assert len(reads) == 2


def test_the_oldest_used_folders_are_removed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "data"
    for k, name in enumerate(("old.json", "used.json", "new.json")):
        if name == "new.json":
            remaining = sorted((folder / temporary_runs.CACHE_FOLDER).iterdir(), key=lambda path: path.stat().st_mtime)
            size = sum(file.stat().st_size for file in remaining[0].rglob("*") if file.is_file())
            monkeypatch.setattr(temporary_runs, "MAX_BYTES", int(2.5 * size))
            report(tmp_path / "old.json", data=folder)  # This file is used again, so the other one is older now.
        report(matmul_loop(steps=4 + k).write(tmp_path / name), data=folder)
        for path in (folder / temporary_runs.CACHE_FOLDER).iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 10))
    names = {next((path / "runs").iterdir()).read_text() for path in (folder / temporary_runs.CACHE_FOLDER).iterdir()}
    assert len(names) == 2 and not any('"used"' in name for name in names)


def test_a_read_only_data_folder_does_not_prevent_a_report(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder would be", encoding="utf-8")
    assert '"best_step_time_ms"' in report(trace, data=tmp_path / "data")
