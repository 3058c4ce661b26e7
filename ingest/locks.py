"""A file held alone, also against other processes; on Windows, which has no such lock, by nobody: one server a folder there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def held(file: int | IO[Any], *, wait: bool = True) -> Iterator[None]:
    """Hold an open file alone inside the block. Without ``wait`` raises OSError where somebody else holds it."""
    if fcntl is None:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def is_held(file: int | IO[Any]) -> bool:
    """Tell whether somebody else holds an open file; True on Windows, where nobody knows."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that ask at once do not see each other
    except OSError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
