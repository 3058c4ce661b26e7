"""Tests that `sawtooth run` changes no exit code, output or file of a training with its own profiler."""

import importlib.util
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sawtooth.ingest.capture.in_process import kineto
from sawtooth.ingest.capture.in_process.postponed import (
    MAX_INTERRUPTIONS,
    NO_TRACE_ADVICE,
    OTHER_PROFILER,
    OTHER_TOOL,
    REASONS,
    TRACE_ADVICE,
    PostponedProfile,
    delay_message,
)
from sawtooth.ingest.capture.in_process.profilers import Profilers, cuda_tool
from tests.benchmarks.other_profiler_patterns import PATTERNS, missing_requirement
from tests.benchmarks.other_profilers import compare, forked


@pytest.fixture(scope="module")
def commands() -> Iterator[tuple[str, str]]:
    """Return the commands that run a script without and with the recorder. Each has imported PyTorch once."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    with tempfile.TemporaryDirectory() as folder, forked(Path(folder)) as commands:
        yield commands


@pytest.mark.parametrize("name", PATTERNS)
def test_a_training_with_its_own_profiler_is_not_changed(tmp_path: Path, commands: tuple[str, str], name: str) -> None:
    missing = "no GPU" if PATTERNS[name].needs == "GPU" else missing_requirement(PATTERNS[name])
    if missing is not None:
        pytest.skip(missing)
    done = compare(PATTERNS[name], tmp_path, *commands)
    assert done.is_right(PATTERNS[name]), done
    if name == "around the loop":
        assert f"sawtooth ingest {tmp_path / 'recorded' / 'theirs.json'}" in done.answer


class OwnProfile:
    interrupted = 0

    def __init__(self, profilers: Profilers) -> None:
        self._profilers = profilers

    def interrupt(self) -> None:
        self.interrupted += 1
        self._profilers.ours = None


def module() -> Any:
    """A substitute for torch.autograd.profiler that records its calls."""
    calls: list[str] = []
    names = ("_prepare_profiler", "_run_on_profiler_start", "_enable_profiler", "_disable_profiler")

    def note_call(name: str) -> Any:
        return lambda: calls.append(name)

    return SimpleNamespace(calls=calls, **{name: note_call(name) for name in names})


def test_the_profile_ends_before_another_profiler_begins() -> None:
    profilers, profiler = Profilers(), module()
    leave = profilers.watch(profiler)
    profilers.ours = own_profile = OwnProfile(profilers)
    with profilers.as_recorder():
        profiler._prepare_profiler()
        profiler._disable_profiler()
    assert (profilers.other_runs, own_profile.interrupted) == (False, 0)
    profiler._prepare_profiler()
    assert (profilers.busy, own_profile.interrupted, profilers.ours) == (True, 1, None), (
        "another profiler that prepares is busy too"
    )
    profiler._run_on_profiler_start()
    profiler._enable_profiler()
    assert (profilers.other_count, own_profile.interrupted) == (1, 1)
    profiler._disable_profiler()
    assert not profilers.busy
    leave()
    profiler._prepare_profiler()
    assert not profilers.busy and profiler.calls[-1] == "_prepare_profiler"


def test_messages_about_another_profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NSYS_PROFILING_SESSION_ID", raising=False)
    profilers = Profilers()
    postponed = PostponedProfile(tmp_path, profilers)
    assert not postponed.must_wait(20)
    postponed.write()
    assert delay_message(tmp_path, profiled=False) is None, "no profile had to wait"
    profilers.other_runs = True
    assert postponed.must_wait(21) and postponed.still_waits
    postponed.write()
    assert delay_message(tmp_path, profiled=False) == OTHER_PROFILER.format(why=REASONS["running"], advice=NO_TRACE_ADVICE)
    trace = tmp_path / "theirs.json"
    profilers.note_export(trace)
    postponed.write()
    assert REASONS["running"] in str(delay_message(tmp_path, profiled=False))
    trace.touch()
    assert delay_message(tmp_path, profiled=False) == OTHER_PROFILER.format(
        why=REASONS["running"], advice=TRACE_ADVICE.format(path=trace)
    )
    profilers.other_runs = False
    assert not postponed.still_waits and not postponed.must_wait(1234)
    postponed.write()
    assert REASONS["short"] in str(delay_message(tmp_path, profiled=False))
    assert str(delay_message(tmp_path, profiled=True)).startswith("The profile began only after step 1,234,")
    for _ in range(MAX_INTERRUPTIONS):
        postponed.interrupted()
    assert postponed.must_wait(2000) and REASONS["interrupted"] in str(delay_message(tmp_path, profiled=False))


@pytest.mark.parametrize(
    ("variables", "tool"),
    [
        ({}, None),
        ({"NSYS_PROFILING_SESSION_ID": "7"}, "Nsight Systems"),
        ({"NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN": "0"}, "Compute Sanitizer"),
        ({"CUDA_INJECTION64_PATH": "/opt/x.so"}, "a CUDA tool"),
        ({"CUDA_INJECTION64_PATH": "none"}, None),
        ({"LD_PRELOAD": "/opt/nvidia/libTreeLauncherTargetInjection.so"}, "Nsight Compute"),
    ],
)
def test_a_tool_that_uses_cupti_is_known_by_the_environment(
    variables: dict[str, str], tool: str | None, tmp_path: Path
) -> None:
    assert cuda_tool(variables) == tool
    (tmp_path / "other_profiler-1.json").write_text(json.dumps({"step": 0, "why": "running", "tool": tool, "exported": []}))
    message = delay_message(tmp_path, profiled=False)
    assert message == (
        OTHER_TOOL.format(tool=tool) if tool else OTHER_PROFILER.format(why=REASONS["running"], advice=NO_TRACE_ADVICE)
    )


@pytest.mark.parametrize("emptied", [False, True], ids=["same environment", "environment emptied by a forked child"])
def test_messages_of_kineto_are_restored_for_another_profiler(monkeypatch: pytest.MonkeyPatch, emptied: bool) -> None:
    called: list[str] = []
    library = SimpleNamespace(suppressLibkinetoLogMessages=lambda: called.append(os.environ.get(kineto.LOG_LEVEL, "unset")))
    monkeypatch.setattr(kineto.ctypes, "CDLL", lambda path: library)
    monkeypatch.setenv(kineto.LOG_LEVEL, "")
    monkeypatch.delenv(kineto.LOG_LEVEL)
    silence = kineto.SilentKineto()
    silence.begin(SimpleNamespace(__file__="torch/__init__.py"))
    assert os.environ[kineto.LOG_LEVEL] == str(kineto.SILENT_LEVEL)
    if emptied:
        monkeypatch.delenv(kineto.LOG_LEVEL)
    silence.end()
    assert called == ["unset"]


def test_the_log_level_of_kineto_set_by_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kineto.LOG_LEVEL, "2")
    silence = kineto.SilentKineto()
    silence.begin(SimpleNamespace(__file__="torch/__init__.py"))
    silence.end()
    assert os.environ[kineto.LOG_LEVEL] == "2"
