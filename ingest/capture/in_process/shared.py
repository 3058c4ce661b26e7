"""Objects and patches that exist once in a process, under however many names this code is loaded in it. Standard library only."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

HOLDER = "_sawtooth_in_this_process"  # the entry of sys.modules that holds the objects
WATCHERS = "_sawtooth_watchers"  # the attribute of a patched function that holds who watches it
T = TypeVar("T")


def process_wide(name: str, make: Callable[[], T]) -> T:
    """Return the object called ``name`` of this process, which is made at the first call."""
    holder = sys.modules.setdefault(HOLDER, ModuleType(HOLDER))
    existing: T = vars(holder).setdefault(name, make())  # one call, so that threads get the same object
    return existing


class Watchers(list[Any]):
    """Who watches a patched function, that function, and the one that it replaced."""

    patched: Callable[..., Any]
    original: Callable[..., Any]


def watch(owner: Any, name: str, watcher: Any, patch: Callable[[Callable[..., Any], list[Any]], Any]) -> Callable[[], None]:
    """Add ``watcher`` to those of the function ``owner.name``, and return what removes it again.

    Only the first watcher patches the function: ``patch`` takes it and the list of watchers, and returns what replaces it. The last watcher that leaves
    restores the original, unless somebody else has replaced the function since.
    """
    watchers = getattr(getattr(owner, name), WATCHERS, None)
    if watchers is None:
        watchers = Watchers()
        watchers.original = getattr(owner, name)
        watchers.patched = functools.wraps(watchers.original)(patch(watchers.original, watchers))
        setattr(watchers.patched, WATCHERS, watchers)
        setattr(owner, name, watchers.patched)
    watchers.append(watcher)

    def leave() -> None:
        watchers[:] = [other for other in watchers if other is not watcher]
        if not watchers and getattr(owner, name) is watchers.patched:
            setattr(owner, name, watchers.original)

    return leave
