"""Environment variables of Kineto, PyTorch's profiler library.

The recorder sets them for its profiles, and removes them for the training's own profiles. Variables that the user has set are not changed.
Standard library only.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DETACH = "TEARDOWN_CUPTI"
LOG_LEVEL = "KINETO_LOG_LEVEL"
# Kineto detaches CUPTI during this number of CUDA calls, with a pause after each call. Measured on an H100 (see ``finish``).
DETACH_CALLS, DETACH_PAUSE_S = 3, 0.1
ONE_CALL_AFTER_S = 1.0  # This long after a profile, Kineto needs only one more CUDA call to detach CUPTI.
SILENT_LEVEL = 6  # This level is above Kineto's last one (USDT), at which PyTorch 2.13 prints two lines per profile.


class Detaching:
    """Control of whether Kineto detaches CUPTI when a profile ends.

    While CUPTI is attached, every kernel launch takes longer: 48 CPU-bound loops were 17 % slower (median) for the rest of the process.
    Before CUDA 12.6, detaching breaks CUDA graphs. There PyTorch sets the variable back to 0 by itself.

    Kineto detaches CUPTI during the next CUDA calls after the profile. A profile that begins before CUPTI is detached records no kernel.
    A process that exits before CUPTI is detached hangs, because Kineto's thread waits for a CUDA call, and Kineto's destructor waits for
    the thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._variable_is_ours = self._pending = self._at_exit = False
        self._clock = clock
        self._ended: float | None = None  # Time at which the profile ended; None while it runs.

    def begin(self) -> None:
        """Let Kineto detach CUPTI at the end of the profile that begins now."""
        self._pending, self._ended = True, None
        if not self._at_exit:
            # Handlers that end a profile were registered earlier, so they run after this one.
            atexit.register(self.before_exit)
            self._at_exit = True
        if DETACH not in os.environ:
            os.environ[DETACH], self._variable_is_ours = "1", True

    def finish(self, torch: Any) -> None:
        """Let Kineto finish detaching after a profile of the recorder, because another profiler begins.

        On an H100 with PyTorch 2.11 and CUDA 13, a profile that began at once had no kernels. After these pauses it had all kernels.
        """
        pending, self._pending = self._pending, False
        if pending and torch is not None and torch.cuda.is_initialized():
            for _ in range(DETACH_CALLS):
                torch.cuda.synchronize()
                time.sleep(DETACH_PAUSE_S)

    def end(self) -> None:
        """Note that the profile has ended."""
        self._ended = self._clock()

    def forget(self) -> None:
        """Do nothing at the end of this process, because it was forked and cannot use CUDA."""
        self._pending = False

    def before_exit(self) -> None:
        """Finish detaching CUPTI before the process ends; leave it attached if a profile still runs.

        On an H200 with PyTorch 2.11, three processes ended while a profile ran, and all three hung. The CUDA calls here do not wait for the
        GPU, which may never finish its work.
        """
        os.environ[DETACH] = "0"
        pending, self._pending = self._pending, False
        if not pending or self._ended is None:
            return
        calls, pause_s = (1, 0.0) if self._clock() - self._ended >= ONE_CALL_AFTER_S else (DETACH_CALLS, DETACH_PAUSE_S)
        with contextlib.suppress(Exception):  # The training's exit code must not change.
            cuda = sys.modules["torch"].cuda
            for _ in range(calls if cuda.is_initialized() else 0):
                cuda.current_stream().query()
                time.sleep(pause_s)

    def leave_attached(self) -> None:
        """Leave CUPTI attached at the end of this profile, because another profiler needs it at once."""
        self._pending = False
        if self._variable_is_ours and os.environ.get(DETACH) == "1":
            del os.environ[DETACH]
        self._variable_is_ours = False


class SilentKineto:
    """Suppression of Kineto's messages in the training's output during the recorder's profiles.

    Kineto reads LOG_LEVEL at the first profile of a process. After another profiler has run, PyTorch 2.13 also prints two lines for the
    recorder's profile.
    """

    def __init__(self) -> None:
        self._library: Path | None = None

    def begin(self, torch: Any) -> None:
        """Stop Kineto from printing during the profile that begins now."""
        if LOG_LEVEL not in os.environ:
            os.environ[LOG_LEVEL] = str(SILENT_LEVEL)
            self._library = Path(getattr(torch, "__file__", "torch")).parent / "lib" / "libtorch_cpu.so"

    def end(self) -> None:
        """Let Kineto print again, because another profiler begins."""
        library, self._library = self._library, None
        if library is None:
            return
        if os.environ.get(LOG_LEVEL) == str(SILENT_LEVEL):
            del os.environ[LOG_LEVEL]
        with contextlib.suppress(Exception):
            # Kineto then prints only errors, as by default. Removing the variable is not enough, because Kineto stores the level in the
            # process. The call does nothing if the user set the variable.
            ctypes.CDLL(str(library)).suppressLibkinetoLogMessages()
