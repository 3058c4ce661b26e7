"""Tests of observing a process without a hook, and of the reason for no hook."""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.ingest.capture.attach import readings, remote, stacks
from sawtooth.ingest.capture.attach.attach import NO_HOOK, AttachOptions, attach
from sawtooth.ingest.capture.attach.targets import Process, read_process
from sawtooth.ingest.capture.command import telemetry


def own_process() -> Process:
    process = read_process(os.getpid())
    assert process is not None
    return process


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python takes code from outside")
def test_a_python_without_remote_execution_is_named_with_its_version() -> None:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"runs Python {version}, but only Python 3.14 or newer accepts code from another process" in str(
        remote.RemoteExecution().why_not(own_process())
    )
    assert "has no attribute 'remote_exec'" in str(remote.RemoteExecution().execute(own_process(), Path("/nothing.py")))


@pytest.mark.parametrize(
    ("answer", "why_not"),
    [
        ("[[3, 14], true]", None),
        ("[[3, 15], true]", None),
        ("[[3, 14], false]", "built without remote execution"),
        ("[[3, 13], false]", "runs Python 3.13"),
        ("", "cannot be asked for its version (no answer)"),
    ],
)
def test_the_reason_against_remote_execution_is_reported(
    answer: str, why_not: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_ask", lambda *_: (answer, ""))
    why = remote.RemoteExecution().why_not(own_process())
    assert why is None if why_not is None else why_not in str(why)


def test_a_process_that_refuses_remote_execution_is_not_asked() -> None:
    call = remote.RemoteExecution()
    for refusing in (
        replace(own_process(), environment={remote.DISABLED: "1"}),
        replace(own_process(), command=("python", "-X", "disable_remote_debug", "train.py")),
        replace(own_process(), command=("python", "-Xdisable-remote-debug", "train.py")),
    ):
        assert "turned off" in str(call.why_not(refusing))
    ended_process = replace(own_process(), started=1)
    assert call.execute(ended_process, Path("/nothing.py")) == f"process {ended_process.pid} has ended"


def test_a_refused_call_names_the_needed_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_ask", lambda *_: ("", "PermissionError: [Errno 1] Operation not permitted"))
    assert "ptrace_scope=0" in str(remote.RemoteExecution().execute(own_process(), Path("/nothing.py")))


def test_resources_of_a_process_are_described() -> None:
    first = readings.ProcessReading(0, 5.0, 4.0, 1.0, 2 * readings.GIB, 40)
    last = readings.ProcessReading(10_000_000_000, 20.0, 13.0, 1.5, 2.5 * readings.GIB, 48)
    assert readings.in_words(7, first, last) == (
        "Process 7 used 1.50 cores on average over 10 s. Its main thread ran for 90 % of the time and waited for a core for 5 %. It has 2.50 GiB of memory "
        "(+0.50 GiB in 10 s) and 48 threads."
    )
    assert readings.in_words(7, first, first) == readings.in_words(7, None, last) == ""


def test_this_process_can_be_read() -> None:
    before = readings.read(os.getpid(), 0)
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    after = readings.read(os.getpid(), 1)
    assert before is not None and after is not None
    assert after.cpu_s >= before.cpu_s + 0.03 and after.main_s >= before.main_s + 0.03
    assert after.memory_bytes > 1e7 and after.threads >= 1
    assert readings.read(2**22 + 1, 0) is None


def test_the_functions_of_the_main_thread_are_named_by_their_innermost_own_frame() -> None:
    torch = "step (/env/lib/python3.14/site-packages/torch/optim/sgd.py:65)"
    lines = [
        f"thread (7): MainThread;<module> (/home/me/train.py:9);main (/home/me/train.py:30);{torch} 30",
        "thread (7): MainThread;<module> (/home/me/train.py:9);main (/home/me/train.py:20);decode (/home/me/data.py:4) 50",
        "thread (7): MainThread;<module> (/home/me/train.py:9);main (/home/me/train.py:20);decode (/home/me/data.py:5) 20",
        "thread (8): Thread-1;run (/home/me/other.py:1) 400",
    ]
    assert stacks.in_words("\n".join(lines), 7) == [
        "The main thread was in these functions of the training (100 stacks): decode (data.py:4) 70 %, main (train.py:30) 30 %."
    ]
    assert stacks.in_words("", 7) == [stacks.TOO_FEW.format(count=0)]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions", stacks.PERMISSION),
        ("Error: no Python", "failed (no Python)"),
    ],
)
def test_a_failing_py_spy_is_reported_with_the_reason(error: str, sentence: str, tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    program.chmod(0o755)
    spying = stacks.StackReader(os.getpid(), tmp_path, str(program))
    time.sleep(0.1)
    assert sentence in spying.end()[0]
    assert stacks.StackReader(os.getpid(), tmp_path, str(tmp_path / "missing")).end() == [stacks.INSTALL]


def test_a_process_without_a_hook_is_only_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoRemoteExecution(remote.RemoteExecution):
        def why_not(self, target: Process) -> str | None:
            return "it is old"

    options: list[str] = []

    def start_sampler(live: Path, *arguments: str) -> object:
        options.extend(arguments)
        return object()

    monkeypatch.setattr(telemetry.sampler_process, "start_sampler", start_sampler)
    monkeypatch.setattr(telemetry.sampler_process, "wait_for_start", lambda process, live, limit_s: True)
    monkeypatch.setattr(
        telemetry.sampler_process,
        "stop_and_write",
        lambda process, live, target: target.write_text('{"k":"tick","g":[],"h":{}}\n') and None,
    )
    monkeypatch.setattr(stacks, "installed_program", lambda: None)
    monkeypatch.setattr("sawtooth.ingest.capture.attach.attach.find_trainings", lambda pid: [own_process()])
    launched = attach(
        os.getpid(), tmp_path / "outside.sawtooth", AttachOptions(name="mine", seconds=0.8), remote=NoRemoteExecution()
    )
    assert launched.bundle == tmp_path / "outside.sawtooth" and launched.exit_code == 0
    assert launched.missing[0] == NO_HOOK.format(why="it is old") and launched.missing[-1] == stacks.INSTALL
    assert launched.missing[1].startswith(f"Process {os.getpid()} used ")
    assert options[-2:] == ["--follow", str(os.getpid())]
