"""Fixtures of the recorder's tests. No profiler runs on after a test.

Many recorded trainings share one import of PyTorch.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sawtooth.ingest.capture.in_process.profilers import PROFILERS, Profilers
from tests.support.forked_torch import server
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from tests.support.captured_loops import SteppingClock

# The process that imports PyTorch is not recorded. Each fork of it has its own settings.
RECORDER = (sys.executable, "-m", "sawtooth.ingest.capture.commands", "run", "--no-sample", "--no-loader", "--after", "3600")


@pytest.fixture(autouse=True)
def no_profiler_is_left() -> Iterator[None]:
    yield
    PROFILERS.ours, PROFILERS.other_runs, PROFILERS.exported = None, False, []


@pytest.fixture(scope="session")
def recorded_python() -> Iterator[str]:
    """Return the path of a Python that has imported PyTorch and has the recorder's hook."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="python-") as folder, server(Path(folder), variables, *RECORDER) as forking:
        yield forking.ready()


@pytest.fixture
def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the profilers of several ranks in this process run without waiting for each other."""
    monkeypatch.setattr(Profilers, "busy", False)


@pytest.fixture
def stepping_clock(monkeypatch: pytest.MonkeyPatch) -> "SteppingClock":
    """Return the clock of a capture, which the test's loop advances. The sampler is a fake."""
    from tests.support.captured_loops import use_stepping_clock  # Imports PyTorch, which other tests do not need.

    return use_stepping_clock(monkeypatch)
