"""NVML calls on a separate thread with a time limit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sawtooth.ingest.sampler.clock import SamplerClock

HUNG_S = 2.0  # NVML answers within milliseconds. A call that takes longer than this hangs.


class HungError(Exception):
    """An NVML call has not returned within the time limit."""


class CallThread:
    """Thread that runs NVML calls, so that a call that never returns does not block the sampler.

    The thread starts with the first call and ends with ``close``.
    """

    def __init__(self, clock: SamplerClock, limit_s: float = HUNG_S) -> None:
        self._clock = clock
        self._limit_s = limit_s
        self._work: Callable[[], Any] | None = None
        self._requested = threading.Event()
        self._done = threading.Event()
        self._outcome: tuple[bool, Any] = (True, None)
        self._thread: threading.Thread | None = None
        self._closed = False
        self.busy = False

    def call(self, work: Callable[[], Any]) -> Any:
        """Run ``work`` on the thread and return its result. Must not be called while ``busy`` is true.

        Raises the errors of ``work``, and HungError after the time limit.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="nvml", daemon=True)
            self._thread.start()
        self._work = work
        self._done.clear()
        self.busy = True
        self._requested.set()
        return self.collect()

    def collect(self) -> Any:
        """Wait again for the result of the running call. Raises HungError after the time limit."""
        if not self._clock.wait(self._done, self._limit_s):
            raise HungError
        self.busy = False
        ok, value = self._outcome
        if not ok:
            raise value
        return value

    def close(self) -> None:
        """End the thread. No calls are allowed afterwards.

        ``close`` does not wait for a hung call. The thread ends when the hung call returns.
        """
        self._closed = True
        self._requested.set()
        if self._thread is not None and not self.busy:
            self._thread.join()

    def _serve(self) -> None:
        while True:
            self._requested.wait()
            self._requested.clear()
            if self._closed:
                return
            work = self._work
            try:
                self._outcome = (True, work() if work else None)
            except Exception as error:  # ``collect`` raises it again in the caller's thread.
                self._outcome = (False, error)
            self._done.set()
