"""Tests of `sawtooth doctor`, which finds damage, and of a copied data folder as a backup."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli
from sawtooth.app.commands import doctor as doctor_command
from sawtooth.ingest.schema import DataFolder
from tests.support.prepared import folder_with_sound_run


@pytest.fixture
def folder(tmp_path: Path, own_temporary_folder: Path, monkeypatch: pytest.MonkeyPatch) -> DataFolder:
    """Return an intact folder, independent of this machine's disk and its free space."""
    monkeypatch.setattr(doctor_command, "MIN_FREE_BYTES", 0)
    return folder_with_sound_run(tmp_path)


def doctor(folder: DataFolder) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["doctor", "--data", str(folder.root)])
    return done.exit_code, done.output


def test_an_intact_folder_has_no_problem(folder: DataFolder) -> None:
    code, answer = doctor(folder)
    assert (code, "1 run" in answer, "0 problems" in answer) == (0, True, True), answer


@pytest.mark.parametrize(
    ("place", "words"),
    [("recordings", "is damaged. Remove its run"), ("sources", "not exported"), ("runs", "Run ")],
)
def test_a_damaged_file_is_named_with_what_to_do(folder: DataFolder, place: str, words: str) -> None:
    (path,) = (folder.root / place).iterdir()
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    content[-40:] = bytes(40)
    path.write_bytes(content)
    code, answer = doctor(folder)
    assert code == 1 and words in answer, answer


@pytest.mark.parametrize(
    "place", ["runs/0123456789abcdef.json", "recordings/0.v1.duckdb", "derived/0.1.duckdb", "sources/0.json.gz"]
)
def test_a_pipe_instead_of_a_file_is_named_without_waiting(folder: DataFolder, place: str) -> None:
    os.mkfifo(folder.root / place)
    assert len(folder.manifests()) == 1
    code, answer = doctor(folder)
    assert code == 1 and "is a pipe, a device or a broken link" in answer and place in answer


def test_a_missing_recording_and_an_open_folder_are_named(folder: DataFolder) -> None:
    (path,) = folder.recordings.iterdir()
    path.unlink()
    folder.root.chmod(0o755)
    code, answer = doctor(folder)
    assert code == 1 and "is missing. Its source is stored" in answer and "chmod 700" in answer


def test_a_copy_of_the_folder_is_a_backup(folder: DataFolder, tmp_path: Path) -> None:
    """A copy of the data folder is a backup, as docs/security.md says.

    Copy it while the server runs or not, and put it back: everything is as it was.
    """
    (run,) = folder.manifests()

    def report(of: DataFolder) -> object:
        library = Library(of)
        try:
            return report_json(analyse(of.read_manifest(run.id), library))
        finally:
            library.close()

    before = report(folder)
    shutil.copytree(folder.root, tmp_path / "backup", ignore=shutil.ignore_patterns("derived", "uploads", ".*"))
    shutil.rmtree(folder.root)
    shutil.copytree(tmp_path / "backup", folder.root)
    folder.root.chmod(0o700)
    assert doctor(folder)[0] == 0
    assert report(folder) == before
