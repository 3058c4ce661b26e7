"""Tests of one trial run: a crash, a kill, a hang and an overwritten file are reported.

Every process ends. The commands load no PyTorch, so that they start quickly.
"""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from sawtooth.app.trials import endings, processes, running
from sawtooth.app.trials.running import FinishedRun, RunRequest
from sawtooth.ingest.capture.trials.settings import TrialSettings

OLD = "the last good checkpoint"


def run_trial(
    folder: Path, code: str, *, guards: bool = True, python: tuple[str, ...] = (sys.executable,), start_s: float | None = 0.2
) -> FinishedRun:
    """Run ``code`` as a trial in ``folder``, which holds a file that is older than the trial."""
    place, work = folder / "training", folder / "work"
    place.mkdir(parents=True)
    (place / "train.py").write_text(code)
    (place / "last.txt").write_text(OLD)
    began_s = (place / "last.txt").stat().st_ctime + 1e-3
    settings = TrialSettings(str(work / "saves"), guards=guards, private=(str(work),), began_s=began_s)
    words = [*python, "train.py"]
    return running.run(RunRequest(words, words, "a trial", place, work, settings, seconds=1.0, start_s=start_s))


@pytest.mark.parametrize(
    ("code", "how", "why"),
    [
        ("raise ValueError('shapes differ')", "failed", "The training ended with exit code 1: ValueError: shapes differ"),
        ("import sys; sys.exit(3)", "failed", "The training ended with exit code 3."),
        (
            "import not_here",
            "failed",
            f"The training ended with exit code 1: ModuleNotFoundError: No module named 'not_here'.{endings.NO_MODULE}",
        ),
        ("raise MemoryError", "out_of_memory", "MemoryError"),
        (
            "raise RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')",
            "out_of_memory",
            "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            "out_of_memory",
            "The system killed the training (SIGKILL), as it does when memory runs out.",
        ),
        ("print('done')", "ended", ""),
    ],
)
def test_the_end_of_a_run_is_named(code: str, how: str, why: str, tmp_path: Path) -> None:
    run = run_trial(tmp_path, code)
    assert (run.ending, run.why, run.bundle, run.step_times_ms) == (how, why, None, [])
    assert (tmp_path / "training" / "last.txt").read_text() == OLD


def test_a_run_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "HANGS_S", 0.0)  # The first step must come within four times the base run's 0.2 s.
    child = f"import time; time.sleep(600)  # {tmp_path}"
    run = run_trial(tmp_path, f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])")
    assert run.ending == "hung"
    assert run.why == "The first step did not end within 800\N{NO-BREAK SPACE}ms, so the run was ended."
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # Other programs may end at the same time.
            assert child not in process.cmdline()


@pytest.mark.parametrize(
    ("python", "code", "how"),
    [
        ((sys.executable, "-I"), "print('done')", "ended"),
        # Without the hook, no step would ever be seen.
        (("env", "-i", sys.executable), "import time; time.sleep(600)", "hung"),
    ],
)
def test_a_python_without_the_hook_is_reported_soon(
    python: tuple[str, ...], code: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "HANGS_S", 0.5)
    run = run_trial(tmp_path, code, python=python, start_s=None)
    assert (run.ending, run.why_unmeasured) == (how, endings.NOT_LOADED)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_run_starts_ends_the_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal comes after the process starts, but before its PID is known."""
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def starts(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*args, **options))
        signal.raise_signal(number)
        return started[0]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(running.subprocess, "Popen", starts)
    before = signal.signal(number, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_trial(tmp_path, "import time; time.sleep(60)")
    finally:
        signal.signal(number, before)
        alive = started[0].poll() is None
        started[0].kill()
    assert not alive


def test_a_python_without_the_hook_that_fails_gives_its_error(tmp_path: Path) -> None:
    run = run_trial(tmp_path, "raise ValueError('shapes differ')", python=(sys.executable, "-I"), start_s=None)
    assert run.why_unmeasured == "The training ended with exit code 1: ValueError: shapes differ"


def test_a_python_has_time_to_load_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell script fetches its data for a while, then it starts Python."""
    now, order = [100.0], RunRequest([], [], "a run", tmp_path, tmp_path, TrialSettings(""), seconds=60.0)
    training = mock.Mock(**{"runs_python.return_value": False})
    monkeypatch.setattr(running.time, "monotonic", lambda: now[0])
    watch = running._Watch(order, tmp_path, mock.Mock(), training, began=now[0])
    hangs = []
    for seconds, has_python in ((running.HANGS_S * 5, False), (1.0, True), (running.HANGS_S, True), (1.0, True)):
        now[0] += seconds
        training.runs_python.return_value = has_python
        hangs.append(watch._hangs())
    (tmp_path / "loaded").touch()
    assert [*hangs, watch._hangs()] == [False, False, False, True, False]


@pytest.mark.parametrize(
    "writes", ["open('last.txt', 'w').write('bad')", "open('last.txt', 'a')", "import os; os.remove('last.txt')"]
)
def test_a_run_ends_before_it_changes_an_existing_file(writes: str, tmp_path: Path) -> None:
    run = run_trial(tmp_path, writes)
    assert run.ending == "guarded" and [file["path"] for file in run.files] == [str(tmp_path / "training" / "last.txt")]
    assert (tmp_path / "training" / "last.txt").read_text() == OLD


def test_temporary_files_are_in_a_folder_with_a_short_path(tmp_path: Path) -> None:
    """Workers pass tensors through a socket. Linux limits the path of a socket to 107 bytes."""
    place = tmp_path / ("w" * 60)
    place.mkdir()
    run = run_trial(
        place, "import os, tempfile; print(len(os.fsencode(tempfile.gettempdir() + '/pymp-12345678/listener-12345678')))"
    )
    assert int(run.tail) <= 107
    short = Path("/tmp/sawtooth-try/1")
    with running._temporary_folder(short) as folder:
        assert folder == str(short / "tmp")


def test_a_run_may_change_files_if_the_user_allows_it(tmp_path: Path) -> None:
    run = run_trial(tmp_path, "open('last.txt', 'w').write('new')", guards=False)
    assert run.ending == "ended" and (tmp_path / "training" / "last.txt").read_text() == "new"


def test_one_long_compiling_step_is_not_a_measurement(tmp_path: Path) -> None:
    """A compiling step of 25.8 s is longer than the measuring time of 4 s."""
    compiled = TrialSettings(str(tmp_path), changes={"compile-cuda-graphs": {}})
    known = {}
    for changes, settings in (("compiles", compiled), ("no change", TrialSettings(str(tmp_path)))):
        order = RunRequest([], [], "a trial", tmp_path, tmp_path, settings, seconds=4.0, start_s=0.2)
        watch = running._Watch(order, tmp_path, mock.Mock(), mock.Mock(), began=0.0)
        known[changes] = [watch._is_known(took, sum(took) / 1e3) for took in ([25_833.0], [25_833.0] + [2.0] * 2100)]
    assert known == {"compiles": [False, True], "no change": [False, True]}


def test_one_second_of_steps_is_not_a_measurement(tmp_path: Path) -> None:
    """A run ends after 5 s of steps (1100 steps of 4.8 ms), even if one second of steps would suffice."""
    order = RunRequest([], [], "a trial", tmp_path, tmp_path, TrialSettings(""), seconds=60.0, enough=lambda took: True)
    watch = running._Watch(order, tmp_path, mock.Mock(), mock.Mock(), began=0.0)
    assert [watch._is_known([4.8] * count, 4.8e-3 * count) for count in (211, 1100)] == [False, True]


@pytest.mark.parametrize(
    ("took", "loop_s", "known"),
    [
        ([], 65.0, False),  # minGPT evaluates for 65 s after its first step.
        ([100.0] * 39, 30.0, False),
        ([100.0] * 40, 30.0, True),
        ([4000.0] * 5, 20.0, False),  # Five steps are too few for a step time, although they are slow.
        ([4000.0] * 20, 80.0, True),
        ([4000.0] * 10, 40.0, True),  # Ten times the requested seconds have passed.
        ([], 40.0, True),  # A training that evaluates after each step has no pair of training steps.
    ],
)
def test_evaluations_do_not_count_and_a_step_time_needs_steps(
    took: list[float], loop_s: float, known: bool, tmp_path: Path
) -> None:
    order = RunRequest([], [], "a trial", tmp_path, tmp_path, TrialSettings(""), seconds=40.0 if loop_s == 65.0 else 4.0)
    watch = running._Watch(order, tmp_path, mock.Mock(), mock.Mock(), began=0.0)
    assert watch._is_known(took, loop_s) == known


def test_only_ports_of_the_next_run_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Port 38815 is in the range that the system assigns, so the next run gets another one."""
    (tmp_path / "range").write_text("32768\t60999\n")
    monkeypatch.setattr(processes, "PORT_RANGE", tmp_path / "range")
    listening = [mock.Mock(status=psutil.CONN_LISTEN, laddr=mock.Mock(port=port)) for port in (29500, 38815)]
    assert processes._ports([mock.Mock(net_connections=lambda kind: listening)]) == {29500}


def test_closed_connections_to_servers_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system keeps a closed connection for a minute.

    Only connections to ports outside the range that the system assigns count.
    """

    def at(port: int, status: str) -> mock.Mock:
        return mock.Mock(status=status, laddr=mock.Mock(port=port))

    others = [at(38815, psutil.CONN_TIME_WAIT), at(29500, psutil.CONN_LISTEN), at(443, psutil.CONN_ESTABLISHED)]
    listed = [[*others, at(29500, psutil.CONN_TIME_WAIT)], [*others, at(29500, psutil.CONN_FIN_WAIT2)], others]
    slept: list[float] = []
    monkeypatch.setattr(processes, "_assigned_ports", lambda: range(30_001, 65_536))
    monkeypatch.setattr(processes.time, "sleep", slept.append)
    monkeypatch.setattr(processes.psutil, "net_connections", lambda kind: listed[len(slept)])
    processes.wait_for_closed_connections()
    assert len(slept) == 2
