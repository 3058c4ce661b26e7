"""Tests of a profile whose thread ends, or which another thread tries to end."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from sawtooth.ingest.capture.in_process.profilers import PROFILERS
from sawtooth.ingest.capture.profiler import StepProfiler
from tests.support.paths import ROOT

# If the recorder ignored threads, this process would crash at its end for two of the three values of ``which`` (SIGSEGV).
PROFILED_THREAD = """
import _thread, sys, threading, time
import torch
from sawtooth.ingest.capture.profiler import StepProfiler
from pathlib import Path

which, begun, profiles = sys.argv[1], threading.Event(), []

def train():
    profiles.append(StepProfiler(torch, Path("trace.part")))
    for _ in range(5):
        (torch.ones(8, 8) @ torch.ones(8, 8)).sum()
    begun.set()

if which == "not by threading":
    _thread.start_new_thread(train, ())
    begun.wait()
    time.sleep(0.2)
else:
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
if which != "never stopped":
    profiles[0].stop()
print("end")
sys.exit(3)
"""


@pytest.mark.parametrize(("which", "written"), [("stopped", True), ("not by threading", False), ("never stopped", True)])
def test_a_process_whose_profiled_thread_has_ended_does_not_crash(tmp_path: Path, which: str, written: bool) -> None:
    (tmp_path / "ends.py").write_text(PROFILED_THREAD)
    words = [sys.executable, "ends.py", which]
    done = subprocess.run(words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (3, "end\n"), done.stderr
    assert (tmp_path / "trace.part").exists() is written


def test_a_profile_ends_with_its_thread_and_keeps_its_trace(tmp_path: Path) -> None:
    profiles: list[StepProfiler] = []

    def train() -> None:
        profiles.append(StepProfiler(torch, tmp_path / "trace.part"))
        torch.ones(4) + torch.ones(4)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert not PROFILERS.busy and profiles[0].writes_trace
    assert "aten::add" in {event["name"] for event in json.loads((tmp_path / "trace.part").read_text())["traceEvents"]}


def test_a_profile_that_another_thread_ends_is_discarded_at_the_next_step_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sawtooth.ingest.capture.profiler.skip_destructors", lambda: None)  # This process ends normally.
    profiler = StepProfiler(torch, tmp_path / "trace.part")
    other = threading.Thread(target=profiler.stop)
    other.start()
    other.join()
    assert PROFILERS.busy and profiler.interrupted and not profiler.writes_trace
    PROFILERS.discard_stopping()
    assert not PROFILERS.busy and not (tmp_path / "trace.part").exists()
    StepProfiler(torch, tmp_path / "next.part").stop()
    assert (tmp_path / "next.part").exists()
