"""Tests of signals to the recorder, which the training gets once."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sawtooth.ingest import children
from tests.support.launches import TRAINING, WITHOUT_COMPILER, members


def wait_for_file(file: Path, process: "subprocess.Popen[str]") -> None:
    while not file.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)


@pytest.mark.parametrize("sent_signal", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_to_the_recorder_reach_the_training(
    tmp_path: Path, own_temporary_folder: Path, sent_signal: signal.Signals
) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(sent_signal)}, lambda *_: sys.exit(9))\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(600)\n"
    )
    command = children.command("sawtooth.ingest.capture.commands", "run", "--no-sample", "train.py")
    process = subprocess.Popen(command, cwd=tmp_path, env=children.environment(), text=True)
    wait_for_file(tmp_path / "ready", process)
    process.send_signal(sent_signal)
    assert process.wait(240) == 9


@pytest.mark.parametrize("sent_signal", [signal.SIGINT, pytest.param(signal.SIGQUIT, marks=pytest.mark.slow)])
def test_ctrl_c_ends_the_training_once_and_what_it_recorded_is_written(
    tmp_path: Path, own_temporary_folder: Path, sent_signal: signal.Signals
) -> None:
    waiting_script = TRAINING.replace(
        "print(", "import pathlib, time\ntime.sleep(1.2)\npathlib.Path('ready').touch()\ntime.sleep(600)\nprint("
    )
    (tmp_path / "train.py").write_text(WITHOUT_COMPILER + waiting_script)
    words = ("--no-sample", "--no-profile", "-o", "run.sawtooth", "train.py", "--epochs", "30")
    process = subprocess.Popen(
        children.command("sawtooth", "run", "--data", "data", *words),
        cwd=tmp_path, env=children.environment(), stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    wait_for_file(tmp_path / "ready", process)
    os.killpg(process.pid, sent_signal)  # A terminal also signals the recorder and the training.
    _, messages = process.communicate(timeout=240)
    assert process.returncode == 128 + sent_signal
    assert messages.count("KeyboardInterrupt\n") == (sent_signal == signal.SIGINT)
    assert f"exit code {128 + sent_signal} after 30 steps" in messages
    assert set(members(tmp_path / "run.sawtooth")) == {"marks"} and "/verdict?run=" in messages
