"""Objects and patches that exist once per process, even if this code is loaded under several names.

Standard library only.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

HOLDER = "_sawtooth_in_this_process"  # This entry of sys.modules has the objects as attributes.
WATCHERS = "_sawtooth_watchers"  # A patched function has its list of watchers in this attribute.
T = TypeVar("T")


def process_wide(name: str, make: Callable[[], T]) -> T:
    """Return this process's object called ``name``, which the first call makes."""
    holder = sys.modules.setdefault(HOLDER, ModuleType(HOLDER))
    existing: T = vars(holder).setdefault(name, make())  # ``setdefault`` is atomic, so all threads get the same object.
    return existing


class Watchers(list[Any]):
    """List of the watchers of a patched function, with the patched and the original function."""

    patched: Callable[..., Any]
    original: Callable[..., Any]


def watch(owner: Any, name: str, watcher: Any, patch: Callable[[Callable[..., Any], list[Any]], Any]) -> Callable[[], None]:
    """Add ``watcher`` to the watchers of the function ``owner.name``; return a function that removes it.

    For the first watcher, ``patch`` gets the function and the list of watchers, and returns the replacement of the function. When the
    last watcher is removed, the original function is restored, unless other code has replaced the function since.
    """
    watchers = getattr(getattr(owner, name), WATCHERS, None)
    if watchers is None:
        watchers = Watchers()
        watchers.original = getattr(owner, name)
        watchers.patched = functools.wraps(watchers.original)(patch(watchers.original, watchers))
        setattr(watchers.patched, WATCHERS, watchers)
        setattr(owner, name, watchers.patched)
    watchers.append(watcher)

    def unwatch() -> None:
        watchers[:] = [other for other in watchers if other is not watcher]
        if not watchers and getattr(owner, name) is watchers.patched:
            setattr(owner, name, watchers.original)

    return unwatch
