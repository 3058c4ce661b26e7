"""Fixtures of the recorder's tests: no profiler is left running after a test.

PyTorch is imported once for many recorded trainings.
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

# The server itself is not recorded, and its loaders are not timed. Each fork has its own settings.
RECORDER = (sys.executable, "-m", "sawtooth.ingest.capture.commands", "run", "--no-sample", "--no-loader", "--after", "3600")


@pytest.fixture(autouse=True)
def no_profiler_is_left() -> Iterator[None]:
    yield
    PROFILERS.ours, PROFILERS.other_runs, PROFILERS.exported = None, False, []


@pytest.fixture(scope="session")
def recorded_python() -> Iterator[str]:
    """Return the path of a Python for `sawtooth run` that has already imported PyTorch.

    It has the recorder's hook.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="python-") as folder, server(Path(folder), variables, *RECORDER) as forking:
        yield forking.ready()


@pytest.fixture
def several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the profilers of several ranks in this process run without waiting for each other."""
    monkeypatch.setattr(Profilers, "busy", False)


@pytest.fixture
def stepping_clock(monkeypatch: pytest.MonkeyPatch) -> "SteppingClock":
    """Return the clock of a capture, which the test's loop advances. The sampler is scripted."""
    from tests.support.captured_loops import use_stepping_clock  # imports PyTorch, which other tests here do without

    return use_stepping_clock(monkeypatch)
