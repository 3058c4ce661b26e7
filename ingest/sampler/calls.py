"""Calls into NVML on a thread of their own: one that never returns is given up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sawtooth.ingest.sampler.clock import Clock

HUNG_S = 2.0  # NVML answers within milliseconds; longer means a hung driver


class HungError(Exception):
    """An NVML call has not come back in time."""


class Caller:
    """Runs calls on a thread of its own, from the first call to ``close``, so that one that never returns does not take the sampler with it."""

    def __init__(self, clock: Clock, limit_s: float = HUNG_S) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._work: Callable[[], Any] | None = None
        self._asked = threading.Event()
        self._done = threading.Event()
        self._outcome: tuple[bool, Any] = (True, None)
        self._thread: threading.Thread | None = None
        self._closed = False
        self.busy = False

    def call(self, work: Callable[[], Any]) -> Any:
        """Return ``work()`` or raise what it raised; raise HungError after the limit. Only when not ``busy``."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
            self._thread.start()
        self._work = work
        self._done.clear()
        self.busy = True
        self._asked.set()
        return self.collect()

    def collect(self) -> Any:
        """Wait for the outstanding call once more."""
        if not self._clock.wait(self._done, self._limit_s):
            raise HungError
        self.busy = False
        ok, value = self._outcome
        if not ok:
            raise value
        return value

    def close(self) -> None:
        """End the thread. A call that hangs is not waited for: its thread ends when it comes back. There are no calls after this."""
        self._closed = True
        self._asked.set()
        if self._thread is not None and not self.busy:
            self._thread.join()

    def _serve(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._closed:
                return
            work = self._work
            try:
                self._outcome = (True, work() if work else None)
            except Exception as error:  # raised again by whoever asked
                self._outcome = (False, error)
            self._done.set()
