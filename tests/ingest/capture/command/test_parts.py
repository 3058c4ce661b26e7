"""Tests of failures of the recording.

The training continues unchanged, and a message says what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.capture import commands
from sawtooth.ingest.capture.command import launch, parts
from sawtooth.ingest.capture.command.interpreter import option_warnings
from sawtooth.ingest.capture.command.parts import (
    abandoned_folders,
    check_complete,
    errors_in,
    free_name,
    keep,
    note_error,
    parts_folder,
)
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.marks import MarkWriter

# Every write of marks fails as on a full disk. Existing files can still be overwritten.
TRAINING = """
import errno, os, pathlib, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
os.write = pathlib.Path.write_bytes = full
for _ in range(30):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print("trained")
raise SystemExit(3)
"""
MARKING_SCRIPT = """
import os, pathlib
if "SAWTOOTH_RUN_FOLDER" in os.environ:
    pathlib.Path(os.environ["SAWTOOTH_RUN_FOLDER"], "marks-1.jsonl").write_text("{}")
print("trained")
raise SystemExit(3)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.mark.slow
def test_a_full_disk_during_training_is_reported(tmp_path: Path, temporary: Path, capfd: Any) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = launch.run([sys.executable, str(tmp_path / "train.py")], tmp_path / "x.sawtooth", launch.RunOptions(sample=False))
    assert done.exit_code == 3 and capfd.readouterr().out == "trained\n"
    (sentence,) = [item for item in done.at_end if "Recording stopped" in item]
    assert os.strerror(errno.ENOSPC) in sentence
    assert not any("steady" in item or "Train longer" in item or "No training loop" in item for item in done.missing)
    assert list(temporary.iterdir()) == []


def test_a_read_only_temporary_folder_does_not_prevent_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    def full(**_: object) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(parts.tempfile, "TemporaryDirectory", full)
    (tmp_path / "train.py").write_text(MARKING_SCRIPT)
    done = launch.run([sys.executable, str(tmp_path / "train.py")], tmp_path / "x.sawtooth", launch.RunOptions(sample=False))
    assert (done.exit_code, done.bundle, capfd.readouterr().out) == (3, None, "trained\n")
    assert done.at_end == [
        f"Nothing was recorded: the temporary folder cannot be written ({os.strerror(errno.ENOSPC)}). "
        "Free space there, or choose another folder with TMPDIR=…"
    ]


def test_the_output_file_is_the_nearest_one_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    (home / "file").touch()
    monkeypatch.chdir(home)
    monkeypatch.setenv("TMPDIR", str(temporary))
    assert parts.output_file(Path("new/folder/run.sawtooth"), "default.sawtooth") == (Path("new/folder/run.sawtooth"), "")
    assert parts.output_file(Path("new/folder"), "default.sawtooth") == (Path("new/folder/default.sawtooth"), "")
    why = "file/run.sawtooth cannot be written (Not a directory). This run is written to "
    beside = home / "run.sawtooth"
    assert parts.output_file(Path("file/run.sawtooth"), "default.sawtooth") == (Path("run.sawtooth"), f"{why}{beside}.")
    beside.touch()
    assert parts.output_file(beside, "default.sawtooth") == (
        home / "run-2.sawtooth",
        f"{beside} exists already. This run is written to {home / 'run-2.sawtooth'}.",
    )

    opened = parts.tempfile.TemporaryFile

    def read_only(*, dir: Path) -> Any:
        if dir.absolute() != temporary:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return opened(dir=dir)

    monkeypatch.setattr(parts.tempfile, "TemporaryFile", read_only)
    path, reported = parts.output_file(Path("run.sawtooth"), "default.sawtooth")
    assert path == temporary / "run.sawtooth"
    assert reported == f"run.sawtooth cannot be written (Read-only file system). This run is written to {path}."


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can mount a small disk")
def test_an_error_is_noted_on_a_disk_without_a_free_byte(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False).returncode:
        pytest.skip("this root may not mount")
    try:
        folder = disk / "run"
        folder.mkdir()
        parts.reserved_error(folder).write_bytes(b" " * parts.RESERVED_BYTES)
        marks = MarkWriter(folder / "marks-1.jsonl")
        with pytest.raises(OSError) as error:
            for index in range(10_000):
                marks.mark(index)
            marks.close()
        note_error(folder / "trouble-1.json", ValueError("longer than the next note, which overwrites this one"), None)
        note_error(folder / "trouble-1.json", error.value, None)
        (sentence,) = errors_in(folder)
        assert sentence.startswith(f"Recording stopped, because {disk} is full (No space left on device)")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_deleted_temporary_folder_is_reported(tmp_path: Path, temporary: Path, capfd: Any) -> None:
    (tmp_path / "train.py").write_text("import os, shutil\nshutil.rmtree(os.environ['SAWTOOTH_RUN_FOLDER'])\n")
    done = launch.run([sys.executable, str(tmp_path / "train.py")], tmp_path / "x.sawtooth", launch.RunOptions(sample=False))
    (sentence,) = done.at_end
    assert (done.exit_code, done.bundle) == (0, None)
    assert sentence.startswith("Nothing was recorded:") and "was deleted while the command ran" in sentence


def test_a_truncated_trace_is_not_complete(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    for text, complete in (('{"traceEvents": []}\n', True), ('{"traceEvents": [{"ts": 1', False), ("", False)):
        trace.write_text(text)
        with contextlib.nullcontext() if complete else pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            check_complete(trace)


def test_incomplete_parts_are_never_next_to_the_file(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def move_on_full_disk(source: Path, target: Path) -> str:
        if target.parent == tmp_path:
            target.mkdir()
            (target / "marks-1.jsonl").write_text("ha")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return str(source.rename(target))

    monkeypatch.setattr(parts.shutil, "move", move_on_full_disk)
    with parts_folder() as folder:
        (folder / "marks-1.jsonl").write_text("half")
        kept_folder = keep(folder, tmp_path / "x.sawtooth")
    assert kept_folder.parent == temporary and (kept_folder / "marks-1.jsonl").read_text() == "half"
    assert not (tmp_path / "x-files").exists()
    assert abandoned_folders() == [kept_folder]


def test_an_existing_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    existing = tmp_path / "mine.sawtooth"
    existing.write_text("precious")
    (tmp_path / "train.py").write_text(MARKING_SCRIPT)
    parser = commands.run_parser()
    for free in ("mine-2.sawtooth", "mine-3.sawtooth"):
        options = parser.parse_args(["--no-sample", "-o", str(existing), str(tmp_path / "train.py")])
        done = commands.record(options, commands.command_in(parser, options))
        assert (done.exit_code, done.bundle) == (3, tmp_path / free)
        assert f"{existing} exists already. This run is written to {tmp_path / free}." in capsys.readouterr().err
    assert existing.read_text() == "precious"
    assert free_name(tmp_path / "new.sawtooth") == tmp_path / "new.sawtooth"


def test_parts_of_a_killed_run_are_named_with_the_ingest_command(tmp_path: Path, temporary: Path, capfd: Any) -> None:
    code = (
        "import sys, time; from pathlib import Path; from sawtooth.ingest.capture.command.parts import parts_folder\n"
        "with parts_folder() as folder:\n    print(folder, flush=True); time.sleep(600)"
    )
    killed = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)}
    )
    assert killed.stdout is not None
    folder = Path(killed.stdout.readline().strip())
    writer = MarkWriter(folder / "marks-1.jsonl", monotonic_ns=iter(range(0, 10**10, 20_000_000)).__next__)
    for index in range(60):
        writer.mark(index)
    writer.close()
    assert abandoned_folders() == []  # The run is not abandoned while it records.
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert abandoned_folders() == [folder]
    launch.run([sys.executable, "-c", ""], tmp_path / "y.sawtooth", launch.RunOptions(sample=False))
    assert f"Run `sawtooth ingest {folder}`, then delete" in capfd.readouterr().err
    from sawtooth.app.commands.doctor import _killed_runs
    from sawtooth.app.jobs.ingest_files import files_of, ingest_into_runs
    from sawtooth.ingest.schema import DataFolder

    assert [folder.name in sentence for sentence in _killed_runs()] == [True]
    files, _ = files_of(folder)
    ingested = ingest_into_runs(DataFolder(tmp_path / "data").create(), files, tolerant=True)
    assert [ref.kind for ref in ingested.runs[0].recordings] == ["marks"]


def test_an_empty_folder_is_not_mentioned(temporary: Path) -> None:
    (temporary / f"{parts.PREFIX}empty-files").mkdir()
    (temporary / f"{parts.PREFIX}file").write_text("")
    assert abandoned_folders() == []


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["python", "-I", "train.py"], "I"),
        (["/usr/bin/python3.12", "-uE", "train.py"], "E"),
        (["numactl", "-m", "1", "python3", "-X", "dev", "-W", "error", "-S", "-m", "train"], "S"),
        (["python", "-Xdev", "-I", "-c", "pass"], "I"),
        (["python", "train.py", "-I"], None),
        (["python", "-m", "train", "-E"], None),
        (["python", "-WIgnore", "-u", "train.py"], None),
        (["python", "-c", "pass", "-S"], None),
        (["bash", "-e", "train.sh"], None),
    ],
)
def test_python_options_that_disable_the_recorder(words: list[str], option: str | None) -> None:
    assert [sentence[:3].strip() for sentence in option_warnings(words)] == ([f"-{option}"] if option else [])


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_ignores_the_recorder_is_reported_twice(tmp_path: Path, option: str, capfd: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('trained')")
    done = launch.run([sys.executable, option, str(script)], tmp_path / "x.sawtooth", launch.RunOptions(sample=False))
    output = capfd.readouterr()
    assert (done.exit_code, output.out) == (0, "trained\n")
    assert f"sawtooth: {option} makes python" in output.err
    assert any("No Python of this command loaded the recorder" in sentence for sentence in done.at_end)
    with_hook = launch.run([sys.executable, str(script)], tmp_path / "x.sawtooth", launch.RunOptions(sample=False))
    assert any("No loop was seen" in sentence for sentence in with_hook.at_end)


@pytest.mark.parametrize(
    ("tick", "runs"), [(b'"g":[]', 0), (b'"g":[{"i":0}]', 1), (b'"g":[],"h":{"c":1}', 1)], ids=["nothing", "a GPU", "the host"]
)
def test_telemetry_is_a_run_only_with_a_sample(tmp_path: Path, tick: bytes, runs: int) -> None:
    (tmp_path / "telemetry.jsonl").write_bytes(b'{"k":"head","q":0}\n{"k":"tick","q":1,' + tick + b'}\n{"k":"end","q":2}\n')
    assert len(runs_to_pack(tmp_path)) == runs
