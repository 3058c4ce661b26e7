"""A folder that all processes of one test run share.

With it, a recording that many tests use is read and analysed only once.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sawtooth.ingest.locks import held

PLACE = "SAWTOOTH_TESTS_FOLDER"  # The controller sets it for the workers of a run.


def make() -> Callable[[], None]:
    """Make the folder of this process and its child processes, and return the function that removes it."""
    os.environ[PLACE] = tempfile.mkdtemp(prefix="sawtooth-tests-")

    def remove() -> None:
        shutil.rmtree(os.environ.pop(PLACE), ignore_errors=True)

    return remove


@cache
def common_folder() -> Path:
    """Return the run's folder; outside a test run, a folder that is deleted with the process."""
    if PLACE not in os.environ:
        return Path(_own().name)
    return Path(os.environ[PLACE])


@cache
def _own() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sawtooth-tests-")


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Prevent two processes from making ``what`` at the same time.

    The second process waits and then finds the result of the first.
    """
    with (common_folder() / f"{what}.lock").open("w") as file, held(file):
        yield
