"""Store derived tables while others are computed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self


class BackgroundWriter:
    """Stores tables in order on its own thread, while the next ones are computed.

    DuckDB and numpy both release the interpreter lock, so the two threads run in parallel.
    """

    def __enter__(self) -> Self:
        self._thread, self._stored, self._due = ThreadPoolExecutor(1), list[Future[Any]](), list[Future[Any]]()
        return self

    def store_next(self, store: Callable[..., Any], *arguments: Any) -> None:
        """Store a table after everything submitted before; raise the error of a table that failed."""
        for finished in [job for job in self._stored if job.done()]:
            finished.result()
        self._stored.append(self._thread.submit(store, *arguments))

    def keep_up(self) -> None:
        """Wait until everything submitted before the previous call of this method is stored.

        Data that is not stored yet stays in memory, so this limits the memory.
        """
        for stored in self._due:
            stored.result()
        self._due = list(self._stored)

    def wait(self) -> None:
        """Wait until everything is stored; raise any error."""
        for stored in self._stored:
            stored.result()
        self._stored.clear()

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Wait until everything is stored and raise any error.

        After an error in the block, tables that are not stored yet are dropped.
        """
        self._thread.shutdown(cancel_futures=error is not None)
        if error is None:
            self.wait()
