"""What Kineto, PyTorch's profiler library, reads from the environment: set for a profile of ours, and put back for the training's own. Standard library only.

A variable that somebody else has set stays as it is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path
from typing import Any

DETACH = "TEARDOWN_CUPTI"
LOG_LEVEL = "KINETO_LOG_LEVEL"
SILENT = 6  # above Kineto's last level, USDT: PyTorch 2.13 prints two lines of that at each profile


class Detaching:
    """Whether CUPTI is detached where a profile ends.

    It stays attached otherwise, and every later launch costs more: 48 loops that their hosts limit were 17 % slower in the median for the rest of the
    process, and slower again after a second profile. Where CUDA graphs cannot bear it (before CUDA 12.6), PyTorch sets it back to 0 by itself.
    Kineto reads the variable when a profile ends, when CUPTI has been detached a little later, and when it attaches CUPTI for the next profile.
    So it stays set after ours, until another profiler ends, which then leaves CUPTI as it would without us.
    """

    def __init__(self) -> None:
        self._by_us = False

    def begin(self) -> None:
        """Have CUPTI detached at the end of the profile that begins now."""
        if DETACH not in os.environ:
            os.environ[DETACH], self._by_us = "1", True

    def end(self) -> None:
        """Leave CUPTI attached where the profile of another profiler ends, if that is what it does without us."""
        if self._by_us and os.environ.get(DETACH) == "1":
            del os.environ[DETACH]
        self._by_us = False


class Silence:
    """Whether Kineto prints into the training's output: not at our profiles, and at those of others as it would without us.

    Kineto reads the variable at the first profile of a process. After another profiler has run, PyTorch 2.13 prints two lines at ours as well.
    """

    def __init__(self) -> None:
        self._library: Path | None = None

    def begin(self, torch: Any) -> None:
        """Have Kineto print nothing of the profile that begins now."""
        if LOG_LEVEL not in os.environ:
            os.environ[LOG_LEVEL] = str(SILENT)
            self._library = Path(getattr(torch, "__file__", "torch")).parent / "lib" / "libtorch_cpu.so"

    def end(self) -> None:
        """Let Kineto print again, because another profiler begins."""
        library, self._library = self._library, None
        if library is not None and os.environ.get(LOG_LEVEL) == str(SILENT):
            del os.environ[LOG_LEVEL]
            with contextlib.suppress(Exception):
                ctypes.CDLL(
                    str(library)
                ).suppressLibkinetoLogMessages()  # to errors alone, as PyTorch does at a process's first profile
