"""A folder that all processes of one test run share, so that a recording which many tests look at is read and analysed once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sawtooth.ingest.locks import held

PLACE = "SAWTOOTH_TESTS_FOLDER"  # set for the workers of a run


def make() -> Callable[[], None]:
    """Make the folder of this process and those that it starts; return what removes it."""
    os.environ[PLACE] = tempfile.mkdtemp(prefix="sawtooth-tests-")

    def remove() -> None:
        shutil.rmtree(os.environ.pop(PLACE), ignore_errors=True)

    return remove


@cache
def common_folder() -> Path:
    """Return the run's folder; outside a test run one that goes with the process."""
    if PLACE not in os.environ:
        return Path(_own().name)
    return Path(os.environ[PLACE])


@cache
def _own() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="sawtooth-tests-")


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Make ``what`` in no two processes at a time: the second finds what the first made."""
    with (common_folder() / f"{what}.lock").open("w") as file, held(file):
        yield
