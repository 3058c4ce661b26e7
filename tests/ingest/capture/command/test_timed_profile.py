"""Tests of the timed profile of a program without a loop. Loops and other profilers have priority."""

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sawtooth.ingest.capture.command.no_profile import has_marks, is_profiled, no_loop_sentence
from sawtooth.ingest.capture.command.recorded_runs import runs_to_pack
from sawtooth.ingest.capture.command.settings import HookSettings
from sawtooth.ingest.capture.command.without_optimizer import timed_profile
from sawtooth.ingest.capture.command.without_optimizer.timed_profile import (
    KIND,
    NO_OPERATION,
    OLD_PYTORCH,
    TimedProfile,
    call_in_main_thread,
    notes_of,
)
from sawtooth.ingest.capture.in_process.profilers import PROFILERS
from sawtooth.ingest.loop.step_boundary import TIMED_NAME

LONG_S = 60.0


@pytest.fixture
def begin_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TimedProfile]:
    """Return a function that begins a short profile of this process at once."""
    monkeypatch.setattr(timed_profile, "MIN_WAIT_S", 0.0)
    monkeypatch.setattr(timed_profile, "POLL_PERIOD_S", 0.005)
    monkeypatch.setattr(timed_profile, "MIN_PROFILE_S", 0.01)
    monkeypatch.setattr(timed_profile, "MIN_CORE_SHARE", 0.0)
    monkeypatch.setattr(timed_profile, "GPU_FILES", ())
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)  # A registration cannot be undone.

    def begin(seconds: float = 0.05, repeats: Callable[[], bool] = lambda: False) -> TimedProfile:
        monkeypatch.setattr(timed_profile, "PROFILE_S", seconds)
        profile = TimedProfile(HookSettings(tmp_path, 5, 0.0, None, 1, 1), torch, repeats, lambda: False)
        profile.begin()
        return profile

    return begin


def wait_until(over: Callable[[], bool], run: Callable[[], object] = lambda: torch.ones(8, 8) @ torch.ones(8, 8)) -> None:
    end = time.monotonic() + LONG_S
    while not over():
        assert time.monotonic() < end
        run()
        time.sleep(0.001)


def has_ended(profile: TimedProfile) -> bool:
    assert profile.thread is not None
    return not profile.thread.is_alive()


def test_a_timed_profile_has_all_threads_and_is_the_run(tmp_path: Path, begin_profile: Callable[..., TimedProfile]) -> None:
    profile = begin_profile(0.1)
    other = threading.Thread(target=wait_until, args=(lambda: has_ended(profile), lambda: torch.ones(4).sin()))
    other.start()
    wait_until(lambda: has_ended(profile))
    other.join()
    (run,) = runs_to_pack(tmp_path)
    ((trace, about),) = run.sources
    events = json.loads(trace.read_text())["traceEvents"]
    threads = {name: {e["tid"] for e in events if e.get("name") == name} for name in ("aten::mm", "aten::sin")}
    assert [e["cat"] for e in events if e.get("name") == TIMED_NAME] == [
        "user_annotation"
    ]  # With this event, no steps are inferred.
    assert about["kind"] == "trace" and threads["aten::mm"] != threads["aten::sin"]
    assert is_profiled([run]) and not has_marks([run])
    assert "came three times. So 0.1" in no_loop_sentence([run], tmp_path, 5.0)
    assert PROFILERS.ours is None
    with torch.profiler.profile() as own:
        torch.ones(4).cos()
    assert any(event.key == "aten::cos" for event in own.key_averages())


def test_no_trace_is_written_if_pytorch_runs_nothing(tmp_path: Path, begin_profile: Callable[..., TimedProfile]) -> None:
    profile = begin_profile(0.02)
    wait_until(lambda: bool(list(notes_of(tmp_path))), lambda: None)
    profile.finish()
    wait_until(lambda: has_ended(profile), lambda: None)
    (note,) = notes_of(tmp_path)
    assert (
        note["why"] == NO_OPERATION
        and note["line"].startswith("test_timed_profile.py:")
        and not list(tmp_path.glob(f"{KIND}-*.json"))
    )
    assert f"PyTorch ran no operation during the profile; the main thread was at {note['line']}." in no_loop_sentence(
        [], tmp_path, 5.0
    )


@pytest.mark.parametrize("competitor", ["profiler", "fork", "loop"])
def test_a_timed_profile_is_cancelled_by_a_loop(
    tmp_path: Path, begin_profile: Callable[..., TimedProfile], competitor: str
) -> None:
    loops: list[int] = []
    profile = begin_profile(LONG_S, lambda: bool(loops))
    wait_until(lambda: PROFILERS.ours is profile)
    if competitor == "fork":
        profile._before_fork()
    elif competitor == "profiler":
        leave = PROFILERS.watch(torch.autograd.profiler)
        with torch.profiler.profile() as own:
            torch.ones(4).cos()
        leave()
        assert any(event.key == "aten::cos" for event in own.key_averages())
    else:
        loops.append(1)
        wait_until(lambda: PROFILERS.ours is None)
    assert PROFILERS.ours is None
    profile._over = True
    wait_until(lambda: has_ended(profile))
    assert not list(tmp_path.glob(f"{KIND}-*.json"))


def test_the_end_of_a_program_ends_its_timed_profile(tmp_path: Path, begin_profile: Callable[..., TimedProfile]) -> None:
    profile = begin_profile(LONG_S)
    wait_until(lambda: PROFILERS.ours is profile)
    end = time.monotonic() + 0.05
    wait_until(lambda: time.monotonic() > end)
    profile.finish()
    assert has_ended(profile) and len(list(tmp_path.glob(f"{KIND}-*.json"))) == 1


def test_a_program_that_waits_is_not_profiled(
    begin_profile: Callable[..., TimedProfile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_profile, "MIN_CORE_SHARE", 2.0 * (os.cpu_count() or 1))
    profile = begin_profile()
    end = time.monotonic() + 0.05
    wait_until(lambda: time.monotonic() > end or PROFILERS.ours is not None)
    assert PROFILERS.ours is None
    profile._over = True
    wait_until(lambda: has_ended(profile))


def test_an_older_pytorch_has_no_timed_profile(
    tmp_path: Path, begin_profile: Callable[..., TimedProfile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TimedProfile, "_new_profiler", lambda _: None)
    profile = begin_profile()
    wait_until(lambda: has_ended(profile))
    assert list(notes_of(tmp_path)) == [{"why": OLD_PYTORCH}] and "needs PyTorch 2.7" in no_loop_sentence([], tmp_path, 5.0)


def test_a_main_thread_inside_one_call_is_not_waited_for_forever() -> None:
    ran: list[int] = []
    asked = threading.Thread(target=call_in_main_thread, args=(lambda: ran.append(1), time.monotonic()))
    lock = threading.Lock()
    lock.acquire()
    asked.start()
    lock.acquire(timeout=0.1)  # This thread runs no Python instruction meanwhile.
    asked.join()
    assert not ran
