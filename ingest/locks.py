"""Exclusive locks on files between processes.

Windows has no such lock, so nothing is locked there: use one server per folder.
"""

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
    """Hold an exclusive lock on an open file inside the block.

    Without ``wait``, raises OSError if another process has the lock.
    """
    if fcntl is None:
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def is_locked(file: int | IO[Any]) -> bool:
    """Return whether another process has locked an open file; True on Windows, where it is not known."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # a shared lock: two processes that ask at once do not see each other
    except OSError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
