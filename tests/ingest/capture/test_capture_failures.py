"""Tests of the capture helper with short or failing loops, which it does not disturb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sawtooth.app.jobs.ingest_files import files_of, ingest_into_runs
from sawtooth.ingest import children
from sawtooth.ingest.capture.recorder import profile
from sawtooth.ingest.runs.bundle_file import open_bundle
from sawtooth.ingest.schema import DataFolder
from tests.support.captured_loops import SteppingClock, train
from tests.support.paths import ROOT


def test_a_loop_that_ends_early_keeps_its_recorded_data(tmp_path: Path, stepping_clock: SteppingClock) -> None:
    with profile(tmp_path / "x", seconds=0.4, skip=2, warmup=2, active=5) as capture:
        train(capture, stepping_clock, 2 + 20 + 2 + 3)
    assert capture.path is not None and any("only 3 of 5 steps" in why for why in capture.why_not)
    with profile(tmp_path / "y", seconds=100) as capture:
        train(capture, stepping_clock, 30)
    assert capture.path is not None and any("no trace" in why for why in capture.why_not)
    with open_bundle(capture.path) as bundle:
        assert [r.kind for r in bundle.manifest.runs[0].recordings] == ["telemetry", "marks"]
        assert bundle.manifest.runs[0].facts.step_time_ms == pytest.approx(20)


def test_too_few_steps_say_how_many_are_needed(
    tmp_path: Path, stepping_clock: SteppingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile(tmp_path / "x", sampler=False) as capture:
        train(capture, stepping_clock, 5)
    assert capture.path is None and list(tmp_path.iterdir()) == []
    message = capsys.readouterr().err
    assert "after 5 steps, but 38 are needed" in message  # 10 skipped + 20 timed + 3 + 5 profiled
    assert "profile(steps=…)" in message


def test_a_loop_that_ends_while_timed_is_not_called_too_short(
    tmp_path: Path, stepping_clock: SteppingClock, capsys: pytest.CaptureFixture[str]
) -> None:
    with profile(tmp_path / "x", sampler=False) as capture:
        train(capture, stepping_clock, 60)
    message = capsys.readouterr().err
    assert capture.path is not None or ("ended after 60 steps, while it was timed" in message and "are needed" not in message)


KILLED_TRAINING = """
import os, signal, sys, time, torch
from pathlib import Path
from sawtooth.app.jobs.ingest_files import ingest_into_runs, files_of
from sawtooth.ingest import children
from sawtooth.ingest.capture import sampler_process
from sawtooth.capture import profile
from tests.support.sampler_bench import recorded
sampler_process.start_sampler = lambda out: recorded(out)
with profile(sys.argv[1]) as capture:
    for _ in range(5):
        torch.ones(2).sum()
        capture.step()
    capture._marks.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_recorded_data_of_a_killed_job_can_be_read(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_TRAINING, str(tmp_path / "run")]
    killed = subprocess.run(command, env=children.environment(), cwd=ROOT, capture_output=True, timeout=120)
    assert killed.returncode == -9, killed.stderr
    (recording_folder,) = tmp_path.iterdir()
    assert recording_folder.name.startswith("run-recording-")
    files, is_folder = files_of(recording_folder)
    (run,) = ingest_into_runs(DataFolder(tmp_path / "data").create(), files, tolerant=is_folder).runs
    assert {ref.kind for ref in run.recordings} == {"telemetry", "marks"}


def test_an_error_of_the_loop_is_raised_unchanged(tmp_path: Path, stepping_clock: SteppingClock) -> None:
    with pytest.raises(ZeroDivisionError), profile(tmp_path / "x", sampler=False) as capture:
        train(capture, stepping_clock, 3)
        raise ZeroDivisionError
    assert capture.path is None


def test_a_failing_profiler_does_not_stop_the_training(tmp_path: Path, stepping_clock: SteppingClock) -> None:
    with profile(tmp_path / "x", sampler=False, seconds=0.1, no_such_option=True) as capture:
        assert train(capture, stepping_clock, 100) < 100
    assert "TypeError" in capture.why_not[-1]


@pytest.mark.parametrize(("rank", "size"), [("a", "8"), ("-1", "8"), ("", ""), ("3", "many"), ("0.5", "0")])
def test_an_invalid_rank_is_ignored(
    rank: str, size: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stepping_clock: SteppingClock
) -> None:
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    with profile(tmp_path / "x", sampler=False, seconds=0.1) as capture:
        train(capture, stepping_clock, 200)
    assert capture.path == tmp_path / "x.sawtooth", capture.why_not


def test_a_capture_that_cannot_begin_does_not_affect_the_training(
    tmp_path: Path, stepping_clock: SteppingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sawtooth.ingest.capture.packing.tempfile.mkdtemp", full)
    with profile(tmp_path / "x", sampler=False) as capture:
        train(capture, stepping_clock, 30)
    assert capture.path is None and "No space left" in capture.why_not[0]
