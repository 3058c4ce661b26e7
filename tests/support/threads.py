"""Check that tests end their threads.

Such threads prevent a worker of pytest from ending, and slow down or block tests of other modules.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

import pytest

GRACE_S = 2.0  # After a request to end, a thread needs milliseconds, or longer on a busy machine.
# Threads of libraries that stay on purpose, by the module of the function that they run or of their class.
STAYS = {
    "execnet": "pytest-xdist's channel to its controller",
    "xdist": "pytest-xdist's worker",
    "tqdm": "tqdm's monitor of progress bars: one for each process, which ends with it",
}


def wait_for_end(threads: Iterable[threading.Thread], seconds: float = GRACE_S) -> list[threading.Thread]:
    """Return the ``threads`` that still run after ``seconds``, without threads that may stay."""
    until = time.monotonic() + seconds
    remaining = [thread for thread in threads if not _may_stay(thread)]
    for thread in remaining:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread for thread in remaining if thread.is_alive()]


def _may_stay(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    modules = {type(thread).__module__, getattr(target, "__module__", None) or ""}
    return any(module.partition(".")[0] in STAYS for module in modules)


def described(thread: threading.Thread) -> str:
    """Return the name of a thread and the function or class that it runs."""
    target = getattr(thread, "_target", None) or type(thread)
    return f"{thread.name} ({getattr(target, '__module__', '?')}.{getattr(target, '__qualname__', target)})"


@pytest.fixture(scope="module", autouse=True)
def threads_end(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if a module leaves a thread running after its tests, including daemon threads and unnamed ones."""
    before = set(threading.enumerate())
    yield
    remaining = wait_for_end(set(threading.enumerate()) - before)
    assert not remaining, f"{request.node.name} does not end its threads: {', '.join(sorted(map(described, remaining)))}"
