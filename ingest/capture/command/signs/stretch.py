"""Profiles a stretch of time in the main thread of a program in which nothing is seen to repeat. CPython only."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...profiler import StepProfiler

SECONDS = 1.0  # of a program that launches all the time this is some megabytes of trace
SUFFIX = ".stretch"  # in the trace's name, after the process
# frames of code that is being imported or compiled: a profile does not begin within
DELICATE = ("<frozen importlib", "/torch/_dynamo/", "/torch/_inductor/", "/torch/_functorch/")


class Stretch:
    """One profile by time. ``begin`` and ``end`` ask the main thread, which does it at its next line."""

    def __init__(self, trace: Path, options: dict[str, Any]) -> None:
        self._trace, self._options = trace, options
        self._profiler: StepProfiler | None = None
        self._call: Any = None
        self._until = 0.0
        self.is_over = False

    @property
    def runs(self) -> bool:
        """Tell whether the profile is being taken."""
        return self._profiler is not None

    @property
    def is_due(self) -> bool:
        """Tell whether the profile has taken its time."""
        return self.runs and time.monotonic() >= self._until

    def begin(self) -> None:
        """Have the main thread begin, unless it imports or compiles something."""
        self._in_main_thread(self._begin)

    def end(self) -> None:
        """Have the main thread end the profile and write the trace."""
        self._in_main_thread(self._end)

    def abandon(self) -> None:
        """Keep nothing; begin no more."""
        self.is_over = True
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            profiler.abandon()
        self._trace.unlink(missing_ok=True)

    def _begin(self) -> None:
        if self.is_over or self.runs or _is_delicate():
            return
        try:
            self._profiler = StepProfiler(sys.modules["torch"], self._trace.with_suffix(".part"), options=self._options)
            self._until = time.monotonic() + SECONDS
        except Exception:
            self.is_over = True
            raise

    def _end(self) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is not None:
            self.is_over = True
            profiler.stop()
            profiler.trace.replace(self._trace)

    def _in_main_thread(self, work: Callable[[], None]) -> None:
        import ctypes  # takes milliseconds, and few programs come to this

        def call(_: Any) -> int:
            with contextlib.suppress(Exception):  # the program must not notice
                work()
            return 0

        self._call = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
        ctypes.pythonapi.Py_AddPendingCall(self._call, None)


def _is_delicate() -> bool:
    frame = sys._getframe()
    while frame is not None:
        if any(part in frame.f_code.co_filename for part in DELICATE):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False
