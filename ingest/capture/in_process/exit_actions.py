"""Actions at the end of a thread or a process, even if os._exit skips exit handlers.

Standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from .shared import watch


def call_before_os_exit(action: Callable[[], None]) -> Callable[[], None]:
    """Make os._exit call ``action`` first; return a function that undoes this."""

    def patch(os_exit: Callable[[int], NoReturn], actions: list[Callable[[], None]]) -> Callable[[int], NoReturn]:
        def act_and_exit(status: int) -> NoReturn:
            for action in actions:
                action()
            os_exit(status)

        return act_and_exit

    return watch(os, "_exit", action, patch)


def at_thread_end(action: Callable[[], None]) -> None:
    """Call ``action`` at the end of this thread.

    The main thread, and threads that Python's threading did not start, never call ``action``.
    """
    thread: Any = threading.current_thread()
    end = getattr(thread, "_delete", None)  # CPython calls this method last in a thread, before ``join`` returns.
    if end is not None and thread is not threading.main_thread():

        def act_and_end() -> None:
            action()
            end()

        thread._delete = act_and_end


def finish_at_end(*watchers: Any) -> Callable[[], None]:
    """Write the remaining data of ``watchers`` when the process ends; return a function that undoes this.

    Forks of the process write nothing.
    """
    with contextlib.ExitStack() as undo:
        for watcher in watchers:
            atexit.register(watcher.finish)
            undo.callback(atexit.unregister, watcher.finish)
            undo.callback(call_before_os_exit(watcher.leave))
            if hasattr(os, "register_at_fork"):  # A forked process, such as a loader worker, does not train.
                os.register_at_fork(after_in_child=watcher.forget)
        return undo.pop_all().close


def skip_destructors() -> None:
    """Make this process end without the library destructors that are registered so far.

    Kineto has a thread in a process that it profiled. A forked process lacks this thread, but Kineto's destructor still waits for the
    thread, and would wait forever. The exit code does not change, and C's files are flushed. Without glibc, this function does nothing.
    """
    with contextlib.suppress(AttributeError):
        libc = ctypes.CDLL(None)
        # glibc calls ``_exit`` with the exit code, before functions that were registered earlier.
        is_registered = libc.on_exit(libc._exit, None) == 0
        if is_registered:
            libc.__cxa_atexit(libc.fcloseall, None, None)
