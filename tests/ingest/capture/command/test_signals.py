"""Tests of signals to the recorder: they reach the training once."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from sawtooth.ingest import children
from tests.support.launches import TRAINING, WITHOUT_COMPILER, members


def until(file: Path, process: "subprocess.Popen[str]") -> None:
    while not file.exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.02)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signals_to_the_recorder_reach_the_training(tmp_path: Path, own_temporary_folder: Path, sent: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(sent)}, lambda *_: sys.exit(9))\n"
        "pathlib.Path('ready').touch()\n"
        "time.sleep(600)\n"
    )
    command = children.command("sawtooth.ingest.capture.commands", "run", "--no-sample", "train.py")
    process = subprocess.Popen(command, cwd=tmp_path, env=children.environment(), text=True)
    until(tmp_path / "ready", process)
    process.send_signal(sent)
    assert process.wait(240) == 9


@pytest.mark.parametrize("sent", [signal.SIGINT, pytest.param(signal.SIGQUIT, marks=pytest.mark.slow)])
def test_ctrl_c_ends_the_training_once_and_what_it_recorded_is_written(
    tmp_path: Path, own_temporary_folder: Path, sent: signal.Signals
) -> None:
    waiting = TRAINING.replace(
        "print(", "import pathlib, time\ntime.sleep(1.2)\npathlib.Path('ready').touch()\ntime.sleep(600)\nprint("
    )
    (tmp_path / "train.py").write_text(WITHOUT_COMPILER + waiting)
    words = ("--no-sample", "--no-profile", "-o", "run.sawtooth", "train.py", "--epochs", "30")
    process = subprocess.Popen(
        children.command("sawtooth", "run", "--data", "data", *words),
        cwd=tmp_path, env=children.environment(), stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(tmp_path / "ready", process)
    os.killpg(process.pid, sent)  # as a terminal does: to the recorder and to the training
    _, said = process.communicate(timeout=240)
    assert process.returncode == 128 + sent
    assert said.count("KeyboardInterrupt\n") == (sent == signal.SIGINT) and f"exit code {128 + sent} after 30 steps" in said
    assert set(members(tmp_path / "run.sawtooth")) == {"marks"} and "/verdict?run=" in said
