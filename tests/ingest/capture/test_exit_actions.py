"""Tests that a fork of a profiled process ends.

A destructor of PyTorch's profiler would wait forever in the fork.
"""

import subprocess
import sys

import pytest

from sawtooth.ingest.capture.in_process import profilers
from tests.support.paths import ROOT

# Kineto's destructor joins a thread that a fork does not have. A destructor that never returns takes its place.
ENDLESS_DESTRUCTOR = """
import ctypes, sys
from sawtooth.ingest.capture.in_process.exit_actions import skip_destructors
libc = ctypes.CDLL(None)
libc.__cxa_atexit(libc.pause, None, None)
skip_destructors()
libc.printf(b"from C\\n")
print("from Python")
sys.exit(3)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's functions")
def test_a_process_without_destructors_ends_with_its_code_and_output() -> None:
    done = subprocess.run([sys.executable, "-c", ENDLESS_DESTRUCTOR], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (3, ["from C", "from Python"])


def test_only_forks_of_a_profiled_process_skip_destructors(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped: list[int] = []
    monkeypatch.setattr(profilers, "skip_destructors", lambda: skipped.append(1))
    own_profilers = profilers.Profilers()
    own_profilers._forget_ours()
    assert not skipped
    with own_profilers.as_recorder():
        pass
    own_profilers._forget_ours()
    assert skipped
