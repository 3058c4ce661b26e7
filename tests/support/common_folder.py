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

from sawtooth.ingest.locks import exclusive_lock

FOLDER_VARIABLE = "SAWTOOTH_TESTS_FOLDER"  # The process that starts the test workers sets this variable.


def make() -> Callable[[], None]:
    """Make the folder of this process and its child processes, and return the function that removes it."""
    os.environ[FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="sawtooth-tests-")

    def remove() -> None:
        shutil.rmtree(os.environ.pop(FOLDER_VARIABLE), ignore_errors=True)

    return remove


@cache
def common_folder() -> Path:
    """Return the shared folder. Outside a test run, it is a folder that is deleted when the process ends."""
    if FOLDER_VARIABLE not in os.environ:
        return Path(_own().name)
    return Path(os.environ[FOLDER_VARIABLE])


@cache
def _own() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sawtooth-tests-")


@contextmanager
def one_process_at_a_time(what: str) -> Iterator[None]:
    """Prevent two processes from making ``what`` at the same time.

    The second process waits and then finds the result of the first.
    """
    with (common_folder() / f"{what}.lock").open("w") as file, exclusive_lock(file):
        yield
