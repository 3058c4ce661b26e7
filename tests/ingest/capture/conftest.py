"""Fixtures of the recorder's tests: no profiler is left running after a test.

PyTorch is imported once for many recorded trainings.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sawtooth.ingest.capture.in_process.profilers import PROFILERS
from tests.support.forked_torch import server
from tests.support.paths import ROOT

# The server itself is not recorded, and its loaders are not timed. Each fork has its own settings.
RECORDER = (sys.executable, "-m", "sawtooth.ingest.capture.commands", "run", "--no-sample", "--no-loader", "--after", "3600")


@pytest.fixture(autouse=True)
def no_profiler_is_left() -> Iterator[None]:
    yield
    PROFILERS.ours, PROFILERS.other, PROFILERS.exported = None, False, []


@pytest.fixture(scope="session")
def recorded_python() -> Iterator[str]:
    """Return the path of a Python for `sawtooth run` that has already imported PyTorch.

    It has the recorder's hook.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory(prefix="python-") as folder, server(Path(folder), variables, *RECORDER) as forking:
        yield forking.ready()
