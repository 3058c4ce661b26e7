"""Actions before os._exit, which does not run exit handlers. Standard library only."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any, NoReturn

from .shared import watch


def before_leaving(act: Callable[[], None]) -> Callable[[], None]:
    """Make os._exit call ``act`` first; return a function that undoes this."""

    def patch(leave: Callable[[int], NoReturn], acts: list[Callable[[], None]]) -> Callable[[int], NoReturn]:
        def act_and_leave(status: int) -> NoReturn:
            for each in acts:
                each()
            leave(status)

        return act_and_leave

    return watch(os, "_exit", act, patch)


def finish_at_end(*watchers: Any) -> Callable[[], None]:
    """Write the remaining data of ``watchers`` when the process ends; return a function that undoes this.

    Forks of the process write nothing.
    """
    with contextlib.ExitStack() as leave:
        for each in watchers:
            atexit.register(each.finish)
            leave.callback(atexit.unregister, each.finish)
            leave.callback(before_leaving(each.leave))
            if hasattr(os, "register_at_fork"):  # A forked process, such as a loader worker, does not train.
                os.register_at_fork(after_in_child=each.forget)
        return leave.pop_all().close


def skip_destructors() -> None:
    """Make this process end without the destructors of libraries that are registered by now.

    A process whose Kineto was used has a thread of Kineto's. A fork of it has no such thread, and waits for it forever in Kineto's destructor,
    unless it ends by os._exit. The exit code stays, and C's files are flushed. Only glibc has these functions.
    """
    with contextlib.suppress(AttributeError):
        libc = ctypes.CDLL(None)
        if libc.on_exit(libc._exit, None) == 0:  # called with the exit code, before what was registered earlier
            libc.__cxa_atexit(libc.fcloseall, None, None)
