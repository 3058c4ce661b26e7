"""Store what is derived while the rest is computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self


class Storing:
    """Stores on a thread of its own, in order, while the next is computed: the engine and numpy each leave the interpreter to the other."""

    def __enter__(self) -> Self:
        self._thread, self._stored, self._due = ThreadPoolExecutor(1), list[Future[Any]](), list[Future[Any]]()
        return self

    def then(self, store: Callable[..., Any], *arguments: Any) -> None:
        """Store this after all that came before; raise what went wrong with what is stored by now."""
        for done in [one for one in self._stored if one.done()]:
            done.result()
        self._stored.append(self._thread.submit(store, *arguments))

    def keep_up(self) -> None:
        """Wait until what waited at the last call of this is stored: what is not stored yet is held in memory."""
        for stored in self._due:
            stored.result()
        self._due = list(self._stored)

    def wait(self) -> None:
        """Wait until everything is stored; raise what went wrong."""
        for stored in self._stored:
            stored.result()
        self._stored.clear()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Wait for everything and raise what went wrong; where computing did, what waits is given up."""
        self._thread.shutdown(cancel_futures=error is not None)
        if error is None:
            self.wait()
