"""Exclusive locks on files between processes.

Windows has no such locks. Nothing is locked on Windows, so only one server may use a data folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows has no such module.
    fcntl = None  # type: ignore[assignment]


@contextmanager
def exclusive_lock(file: int | IO[Any], *, wait: bool = True) -> Iterator[None]:
    """Lock an open file exclusively inside the context.

    Without ``wait``, raises OSError if another process has locked the file.
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
    """Return whether another process has locked an open file.

    The result is True on Windows, where this is unknown.
    """
    if fcntl is None:
        return True
    try:
        # The lock is shared, so that two processes that check at the same time do not disturb each other.
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
