"""Tests that `sawtooth run` does not change a command, and reports problems."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sawtooth.ingest.capture.command import launch, telemetry
from sawtooth.ingest.capture.command.foreground import NOT_FOUND
from sawtooth.ingest.capture.command.no_profile import no_profile_sentence
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.marks import MarkWriter
from tests.support.launches import started


class SteppingClock:
    """A clock that advances by ``step_s`` at each reading after the first."""

    def __init__(self, step_s: float) -> None:
        self.step_ns, self.now_ns = round(step_s * 1e9), 0

    def __call__(self) -> int:
        self.now_ns += self.step_ns
        return self.now_ns


@pytest.mark.parametrize(
    ("steps", "step_s", "after_s", "sentence"),
    [
        (60, 0.02, 5.0, "the loop took 60 steps in 1.2 s, and a profile needs 255 steps of this length, because it begins after 5 s. Train longer, or use sawtooth run --after 0.55 …."),
        (1, 0.02, 5.0, "the loop took 1 step in 0 s, and a profile needs 25 steps. Train longer."),
        (12, 10.0, 5.0, "the loop took 12 steps in 110 s, and a profile needs 25 steps. Train longer."),
        (900, 0.02, 5.0, "the loop was never steady during 900 steps (18 s), or the loop ended during the profile. After 60 s a loop is profiled even if it is not steady. Train longer."),
    ],
)  # fmt: skip
def test_the_needed_steps_follow_from_the_step_rate(
    tmp_path: Path, steps: int, step_s: float, after_s: float, sentence: str
) -> None:
    clock = SteppingClock(step_s)
    writer = MarkWriter(tmp_path / "marks-1.jsonl", wall_ns=lambda: 0, monotonic_ns=clock)
    for index in range(steps):
        writer.mark(index, optimizer=0)
    writer.close()
    (run,) = runs_to_pack(tmp_path)
    assert no_profile_sentence(run, 5, after_s) == f"No profile: {sentence}"


def test_a_command_without_a_loop_is_reported_and_keeps_its_exit_code(tmp_path: Path) -> None:
    done = started("--no-sample", "echo", "hi", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "hi\n")
    assert "No Python of this command loaded the recorder" in done.stderr
    failed = started("--no-sample", "sh", "-c", "exit 3", cwd=tmp_path)
    assert failed.returncode == 3 and "exit code 3 before its first step" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1, "the command prints its own error"


@pytest.mark.parametrize("words", [("--", "sh", "-c", "echo out; echo err >&2; exit 3"), ("sh", "-c", "echo out; exit 3")])
def test_any_command_runs_unchanged(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = started("--no-sample", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert not list(tmp_path.glob("*.sawtooth"))


def test_a_missing_command_gives_one_sentence(tmp_path: Path) -> None:
    done = started("--no-sample", "no-such-command", cwd=tmp_path)
    assert done.returncode == NOT_FOUND
    assert "There is no command 'no-such-command'." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("trian.py", "--epochs", "3"), 2, "can't open file"),
        ((sys.executable, "trian.py"), 2, "can't open file"),
        (("pyhton", "train.py"), NOT_FOUND, "There is no command 'pyhton'."),
        (("./no-such-script", "x"), NOT_FOUND, "There is no command './no-such-script'."),
    ],
)
def test_a_misspelled_command_is_reported_once_with_the_exit_code_of_a_shell(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = started(*words, cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    assert message in done.stderr and not list(tmp_path.iterdir())


@pytest.mark.usefixtures("sampled")
def test_a_command_that_fails_before_a_step_leaves_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = "The command ended with exit code 3 before its first step, so no run was written."
    done = launch.run(["sh", "-c", "exit 3"], tmp_path / "x.sawtooth")
    assert (done.exit_code, done.bundle, done.at_end) == (3, None, [message]) and not list(tmp_path.iterdir())
    monkeypatch.setattr(launch, "MIN_TELEMETRY_S", 0.0)  # Longer telemetry would be stored, because it may show the reason.
    (tmp_path / "x.jsonl").write_text("the user's own")
    for name in ("x-telemetry.jsonl", "x-telemetry-2.jsonl"):
        done = launch.run(["sh", "-c", "exit 3"], tmp_path / "x.sawtooth")
        assert (done.bundle, done.at_end) == (None, [f"{message} The telemetry is in {tmp_path / name}."])
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "x.jsonl": "the user's own",
        "x-telemetry.jsonl": "{}\n",
        "x-telemetry-2.jsonl": "{}\n",
    }


def test_a_sampler_stopped_during_its_start_is_described_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The process ends by the signal, however busy the machine is.
    monkeypatch.setattr(telemetry.sampler_process, "MAX_STOP_S", 240.0)
    code = "import time; print('ready', flush=True); time.sleep(60)"
    python = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert python.stdout is not None and python.stdout.readline()
    reason = telemetry.sampler_process.stop_and_write(python, tmp_path, tmp_path / "telemetry.jsonl")
    assert reason == "the training ended before the sampler had started"


@pytest.mark.parametrize(
    ("complaint", "message"),
    [
        (
            "This machine has no working NVIDIA driver. Sample elsewhere.",
            "No telemetry: This machine has no working NVIDIA driver. The command runs",
        ),
        ("No permission to read the GPUs.", "No telemetry: No permission to read the GPUs. The command runs"),
    ],
)
def test_missing_telemetry_is_announced_before_the_training_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], complaint: str, message: str
) -> None:
    refusing = [sys.executable, "-c", f"import sys; sys.exit('sawtooth sample: {complaint}')"]
    monkeypatch.setattr(
        telemetry.sampler_process,
        "start_sampler",
        lambda live, *more: subprocess.Popen(refusing, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE),
    )
    done = launch.run([sys.executable, "-c", "import sys; print('training', file=sys.stderr)"], tmp_path / "x.sawtooth")
    printed = capfd.readouterr().err
    assert printed.index(message) < printed.index("training\n")
    assert done.exit_code == 0 and done.missing[0] == message.split(" The command")[0]
    assert [sentence.partition(":")[0] for sentence in done.at_end] == ["No loop was seen"]  # No sentence is printed twice.


def test_an_output_file_that_cannot_be_written_does_not_stop_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = started("-o", "file/run.sawtooth", "--no-sample", "python", "-c", "print('training')", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "training\n")
    assert done.stderr.startswith(
        "sawtooth: file/run.sawtooth cannot be written (Not a directory). "
        f"This run is written to {tmp_path / 'run.sawtooth'}.\n"
    )


def test_a_port_in_use_does_not_stop_the_training(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = started("--metrics", address, "python", "-c", "print('training')", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "training\n")
    assert done.stderr.startswith(f"sawtooth: --metrics cannot use {address} (Address already in use), so this run serves no")
    wrong = started("--metrics", "here", "python", "-c", "print('training')", cwd=tmp_path)
    assert (wrong.returncode, wrong.stdout) == (2, "") and "needs a port, such as 127.0.0.1:9101, not 'here'" in wrong.stderr


@pytest.mark.usefixtures("sampled")
def test_a_python_without_torch_is_named_with_advice(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 1\necho "ModuleNotFoundError: No module named \'torch\'" >&2\nexit 1\n')
    python.chmod(0o755)
    (tmp_path / "train.py").touch()
    for sample in (False, True):  # With and without sampling of the GPU.
        done = launch.run([str(python), str(tmp_path / "train.py")], tmp_path / "x.sawtooth", launch.RunOptions(sample=sample))
        assert (done.exit_code, done.bundle) == (1, None)
        assert done.at_end == [launch.NO_TORCH.format(python=python, command=tmp_path / "train.py")]


def test_a_failed_training_with_torch_gets_no_advice_to_install_it(tmp_path: Path) -> None:
    done = launch.run(
        [sys.executable, "-c", "import sys; sys.exit(1)"], tmp_path / "x.sawtooth", launch.RunOptions(sample=False)
    )
    assert (done.exit_code, done.at_end) == (1, [launch.NO_STEP.format(code=1, telemetry="")])


def test_a_sampler_that_is_slow_to_start_is_not_waited_for(tmp_path: Path) -> None:
    ticks = iter(range(100))
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert telemetry.sampler_process.wait_for_start(process, tmp_path, clock=lambda: next(ticks) * 0.4)
        assert next(ticks) <= 5
    finally:
        process.kill()
        process.wait()


def test_the_training_imports_its_own_packages_and_sitecustomize(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("owner = 'mine'")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins; builtins.customized = True")
    (tmp_path / "train.py").write_text("import app, sys; print(app.owner, customized, 'sawtooth' in sys.modules)")
    packages = os.pathsep.join([str(tmp_path), str(tmp_path / "site")])
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(launch.IMPORT_ROOT)!r}); from sawtooth.ingest.capture.commands import main; main(['run', '--no-sample', 'train.py'])",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": packages}, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "mine True False\n", done.stderr
