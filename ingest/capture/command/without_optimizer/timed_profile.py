"""Profile of a few seconds of a program in which no loop is seen.

Standard library only, apart from PyTorch, which the program has imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ....loop.step_boundary import TIMED_NAME
from ...devices import name_gpus
from ...in_process.event_limit import MAX_EVENTS, EventLimit, memory_reading
from ...in_process.profilers import PROFILERS, cuda_tool
from ...in_process.set_up import note_set_up
from ..call_site import line_at
from ..graphs import GRAPHS
from ..parts import check_whole
from ..settings import HookSettings

KIND = "stretch"  # File names begin with it. Timed profiles were called stretches when the names were chosen.
PROFILE_S = 2.0  # Duration of a profile. A program that launches kernels all the time makes 100,000 events in this time.
WAIT_FACTOR = (
    2.0  # The wait is longer by this factor than ``after_s``, the wait of a loop's profile, because a loop may still begin.
)
MIN_WAIT_S = 2.0  # The wait is at least this long, even with a small ``after_s``.
MIN_PROFILE_S = 0.2  # A profile is dropped if the program's end makes it shorter than this.
# The process must have used this share of a core. A process that only waits (a launcher, a server's parent) is not profiled.
MIN_CORE_SHARE = 0.2
POLL_PERIOD_S = 0.05  # Pause between two checks of whether the profile must begin or end.
# The main thread must begin the profile within this time. If it is inside one long call, the start is tried again later.
MAX_START_S = 30.0
MAX_END_S = 10.0  # A program's end waits at most this long for the trace. Writing the trace usually takes less.
MAX_INTERRUPT_S = 2.0  # The start of another profiler waits at most this long for the end of this one.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # The drivers of NVIDIA, of WSL and of AMD create these files.
OPTIMIZER_WAIT_FACTOR = 3.0  # The wait is longer by this factor if an optimizer exists, because its first step may come late.
# Reasons for a missing trace: PyTorch is older than 2.7, PyTorch ran no operation, or the main thread stayed inside one call.
OLD_PYTORCH, NO_OPERATION, INSIDE_CALL = "old", "idle", "inside"


class TimedProfile:
    """A profile of PROFILE_S of a program. It is not taken if ``has_loop()`` becomes true before.

    A separate thread waits for the start and ends the profile. The main thread begins the profile between two instructions, because Kineto
    prints an error if another thread prepares a process's first profile. All threads are profiled. The wait is longer if
    ``optimizer_exists()``.
    """

    def __init__(
        self, settings: HookSettings, torch: Any, has_loop: Callable[[], bool], optimizer_exists: Callable[[], bool]
    ) -> None:
        self._settings, self._torch = settings, torch
        self._has_loop, self._optimizer_exists = has_loop, optimizer_exists
        self._over = False  # This is not an Event, because a fork could copy an Event's lock while it is locked.
        self._interrupted = False
        self.gives_way = True  # The profile of a loop's steps may interrupt this one.
        self._profiler: Any = None
        self._limit = EventLimit()
        self._loaded = time.monotonic()
        self._pid = os.getpid()
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, unless this process is one of several ranks, or a worker of another process."""
        s = self._settings
        main = threading.current_thread() is threading.main_thread()
        if s.steps > 0 and s.ranks == 1 and main and multiprocessing.parent_process() is None and cuda_tool() is None:
            self.thread = threading.Thread(target=self._run, name="sawtooth-timed-profile", daemon=True)
            self.thread.start()
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self._before_fork)

    def _run(self) -> None:
        began = time.process_time()
        wait_s = max(WAIT_FACTOR * self._settings.after_s, MIN_WAIT_S)
        try:
            while not self._over and not self._has_loop():
                time.sleep(POLL_PERIOD_S)
                waited_s = time.monotonic() - self._loaded
                due = waited_s >= wait_s and waited_s >= wait_s * (OPTIMIZER_WAIT_FACTOR if self._optimizer_exists() else 1)
                computes = time.process_time() - began >= MIN_CORE_SHARE * waited_s
                if due and computes and self._is_imported() and self._may_begin():
                    if self._take_profile():
                        return
                    wait_s = 2 * (time.monotonic() - self._loaded)  # PyTorch ran nothing, so try again after twice the time.
        except Exception:  # Errors of the recorder must not reach the program.
            self._over = True

    def _is_imported(self) -> bool:
        return not getattr(self._torch.__spec__, "_initializing", False)

    def _new_profiler(self) -> Any:
        """Return a profiler of all threads; None if this PyTorch has none."""
        try:  # Nothing is imported here, because the main thread may be importing the same module and would see half of it.
            all_threads = self._torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        except TypeError:
            return None
        device = "cuda" if self._torch.cuda.is_initialized() else None
        return self._torch.autograd.profiler.profile(
            use_cpu=True,
            use_device=device,
            record_shapes=True,
            with_stack=self._settings.stacks,
            use_kineto=True,
            experimental_config=all_threads,
        )

    def _may_begin(self) -> bool:
        """Return whether a profile can begin, and would see the GPU if there is one.

        If a profile began before CUDA is initialized, no later profile of this process would see the GPU.
        """
        uses_gpu = self._torch.cuda.is_initialized()
        return not PROFILERS.busy and not GRAPHS.capturing and (uses_gpu or not any(map(os.path.exists, GPU_FILES)))

    def _take_profile(self) -> bool:
        """Take the profile; return whether its trace was written, or this PyTorch cannot make one."""
        self._profiler = self._new_profiler()
        if self._profiler is None:
            self._note(why=OLD_PYTORCH)
            return True
        until = time.monotonic() + MAX_START_S
        began = in_main_thread(self._start, until)
        if began is None:
            if time.monotonic() > until:
                self._note(why=INSIDE_CALL, line=line_of_main())
            return False
        lines: Counter[str] = Counter()
        while not self._must_end(began + PROFILE_S):
            lines[line_of_main()] += 1
            time.sleep(POLL_PERIOD_S)
        with GRAPHS.none_captured():
            ended = time.monotonic()
            self._stop()
        dropped = self._interrupted or self._has_loop() or ended - began < MIN_PROFILE_S
        written = not dropped and self._write_trace(began, ended, lines)
        self._profiler = None  # This frees 4 kB for each operator.
        return written

    def _start(self) -> float | None:
        """Begin the profile on the main thread; return the time, or None if it must not begin now."""
        if self._over or self._has_loop() or not self._may_begin():
            return None
        PROFILERS.detaching.begin()
        PROFILERS.silence.begin(self._torch)
        PROFILERS.ours, self._interrupted = self, False
        self._limit = EventLimit(memory=memory_reading(uses_gpu=self._torch.cuda.is_initialized()))
        try:
            with PROFILERS.by_us():
                self._profiler._prepare_trace()
                self._profiler._start_trace()
                # This mark keeps the analysis from inferring steps, which would be chance.
                with self._torch.profiler.record_function(TIMED_NAME):
                    pass
        except BaseException:
            PROFILERS.ours = None
            raise
        return time.monotonic()

    def _must_end(self, at: float) -> bool:
        left_s = at - time.monotonic()
        # At least half of the time is profiled. The growth of memory shows the number of events, but the program's own memory may grow too.
        return left_s <= 0 or (left_s <= PROFILE_S / 2 and self._limit.events() >= MAX_EVENTS) or self._is_unwanted()

    def _is_unwanted(self) -> bool:
        return self._over or self._interrupted or self._has_loop()

    def _stop(self) -> None:
        add = type("Metadata", (), {"add_metadata_json": staticmethod(self._torch.autograd._add_metadata_json)})
        try:
            name_gpus(add, self._torch)
            note_set_up(add, self._torch)
            with PROFILERS.by_us():
                self._profiler.__exit__(None, None, None)
        finally:
            PROFILERS.ended_ours()

    def _write_trace(self, began: float, ended: float, lines: Counter[str]) -> bool:
        """Write the trace if PyTorch ran anything, else a note with the main thread's most frequent line."""
        if not any("::" in event.name() for event in self._profiler.kineto_results.events()):
            self._note(why=NO_OPERATION, line=max(lines, key=lambda line: lines[line], default=""))
            return False
        part = self._settings.file(KIND, "part")
        with PROFILERS.by_us():
            self._profiler.export_chrome_trace(str(part))
        check_whole(part)
        self._note(after_s=began - self._loaded, seconds=ended - began)
        part.replace(self._settings.file(KIND, "json"))
        return True

    def _note(self, **about: object) -> None:
        with contextlib.suppress(OSError):
            self._settings.file(KIND, "note").write_text(json.dumps(about))

    def interrupt(self) -> None:
        """End and discard the profile, because another profiler begins or the process forks."""
        self._interrupted = True
        until = time.monotonic() + MAX_INTERRUPT_S
        while PROFILERS.ours is self and time.monotonic() < until:
            time.sleep(0.001)

    def _before_fork(self) -> None:
        if PROFILERS.ours is self:  # Otherwise the child would continue to record into its memory.
            self.interrupt()

    def finish(self) -> None:
        """End the profile at the process's end, and write its trace."""
        self._over = True
        if PROFILERS.ours is self and self.thread is not None and threading.current_thread() is not self.thread:
            self.thread.join(MAX_END_S)

    def leave(self) -> None:
        """Write nothing more, because the process ends at once."""
        self._over = True

    def forget(self) -> None:
        """Do nothing more, because this process was forked."""
        self._over = True


def start(
    settings: HookSettings, torch: Any, has_loop: Callable[[], bool], optimizer_exists: Callable[[], bool]
) -> TimedProfile:
    """Start the timed profile of this process and return it."""
    profile = TimedProfile(settings, torch, has_loop, optimizer_exists)
    profile.begin()
    return profile


def line_of_main() -> str:
    """Return the main thread's line of the user's code, such as train.py:12; "" if it runs none."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return line_at(frame) if frame is not None else ""


def in_main_thread(act: Callable[[], float | None], until: float) -> float | None:
    """Make the main thread run ``act`` between two instructions; return its result.

    The result is None if ``act`` failed, or if the main thread stayed inside one call until the monotonic time ``until``.
    """
    results: list[float | None] = []
    # The thread that acquires it first decides: the main thread runs ``act``, or this thread gives up.
    decision = threading.Lock()

    def acts(_: object) -> int:
        if decision.acquire(blocking=False):
            try:
                results.append(act())
            except BaseException:
                results.append(None)
        return 0

    pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(acts)
    _PENDING_CALLS.append(pending)  # Python may call it much later, so it must stay alive.
    if ctypes.pythonapi.Py_AddPendingCall(pending, None) != 0:
        return None
    while not results:
        if time.monotonic() > until and decision.acquire(blocking=False):
            return None
        time.sleep(POLL_PERIOD_S / 10)
    return results[0]


_PENDING_CALLS: list[object] = []


def notes_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the notes of all processes about their timed profiles."""
    for path in sorted(folder.glob(f"{KIND}-*.note")):
        with contextlib.suppress(OSError, ValueError):
            yield json.loads(path.read_text())
