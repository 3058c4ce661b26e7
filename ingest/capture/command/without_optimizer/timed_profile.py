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
from ..parts import check_complete
from ..settings import HookSettings

KIND = "stretch"  # File names begin with this word, the older name of timed profiles.
PROFILE_S = 2.0  # Duration of a profile. A program that launches kernels all the time makes 100,000 events in this time.
# The wait is longer by this factor than ``after_s``, the wait for a loop's profile, because a loop may still begin.
WAIT_FACTOR = 2.0
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
OPTIMIZER_WAIT_FACTOR = 3.0  # The wait is longer by this factor if an optimizer exists, because the first step may come late.
# Reasons for a missing trace: PyTorch is older than 2.7, PyTorch ran no operation, or the main thread stayed inside one call.
OLD_PYTORCH, NO_OPERATION, INSIDE_CALL = "old", "idle", "inside"


class TimedProfile:
    """A profile of PROFILE_S of a program. No profile is taken if ``has_loop()`` becomes true before.

    A separate thread waits for the start and ends the profile. The main thread begins the profile between two instructions, because Kineto
    prints an error if another thread prepares a process's first profile. All threads are profiled. The wait is longer if
    ``optimizer_exists()`` is true.
    """

    def __init__(
        self, settings: HookSettings, torch: Any, has_loop: Callable[[], bool], optimizer_exists: Callable[[], bool]
    ) -> None:
        self._settings, self._torch = settings, torch
        self._has_loop, self._optimizer_exists = has_loop, optimizer_exists
        self._over = False  # This is not an Event, because a fork could copy an Event's lock while it is locked.
        self._interrupted = False
        self.gives_way = True  # The profile of a loop's steps may interrupt this profile.
        self._profiler: Any = None
        self._limit = EventLimit()
        self._load_s = time.monotonic()
        self._pid = os.getpid()
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, unless this process is one of several ranks, or a worker of another process."""
        is_requested = self._settings.steps > 0
        in_main_thread = threading.current_thread() is threading.main_thread()
        is_single_process = self._settings.ranks == 1 and multiprocessing.parent_process() is None
        if is_requested and in_main_thread and is_single_process and cuda_tool() is None:
            self.thread = threading.Thread(target=self._run, name="sawtooth-timed-profile", daemon=True)
            self.thread.start()
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self._before_fork)

    def _run(self) -> None:
        start_cpu_s = time.process_time()
        wait_s = max(WAIT_FACTOR * self._settings.after_s, MIN_WAIT_S)
        try:
            while not self._over and not self._has_loop():
                time.sleep(POLL_PERIOD_S)
                waited_s = time.monotonic() - self._load_s
                is_due = waited_s >= wait_s and waited_s >= wait_s * (OPTIMIZER_WAIT_FACTOR if self._optimizer_exists() else 1)
                computes = time.process_time() - start_cpu_s >= MIN_CORE_SHARE * waited_s
                if is_due and computes and self._is_imported() and self._may_begin():
                    if self._take_profile():
                        return
                    wait_s = 2 * (time.monotonic() - self._load_s)  # PyTorch ran nothing, so try again after twice the time.
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
        """Return whether a profile can begin now.

        On a host with a GPU, a profile waits until CUDA is initialized. Otherwise no later profile of this process would record the GPU.
        """
        uses_gpu = self._torch.cuda.is_initialized()
        return not PROFILERS.busy and not GRAPHS.capturing and (uses_gpu or not any(map(os.path.exists, GPU_FILES)))

    def _take_profile(self) -> bool:
        """Take the profile; return whether no further attempt is needed.

        No attempt is needed after the trace was written, or if this PyTorch cannot profile all threads.
        """
        self._profiler = self._new_profiler()
        if self._profiler is None:
            self._note(why=OLD_PYTORCH)
            return True
        deadline_s = time.monotonic() + MAX_START_S
        start_s = call_in_main_thread(self._start, deadline_s)
        if start_s is None:
            if time.monotonic() > deadline_s:
                self._note(why=INSIDE_CALL, line=main_thread_line())
            return False
        lines: Counter[str] = Counter()
        while not self._must_end(start_s + PROFILE_S):
            lines[main_thread_line()] += 1
            time.sleep(POLL_PERIOD_S)
        with GRAPHS.none_captured():
            end_s = time.monotonic()
            self._stop()
        is_dropped = self._interrupted or self._has_loop() or end_s - start_s < MIN_PROFILE_S
        is_written = not is_dropped and self._write_trace(start_s, end_s, lines)
        self._profiler = None  # This frees 4 kB for each operator.
        return is_written

    def _start(self) -> float | None:
        """Begin the profile on the main thread; return the monotonic time, or None if it may not begin now."""
        if self._over or self._has_loop() or not self._may_begin():
            return None
        PROFILERS.detaching.begin()
        PROFILERS.silence.begin(self._torch)
        PROFILERS.ours, self._interrupted = self, False
        self._limit = EventLimit(memory=memory_reading(uses_gpu=self._torch.cuda.is_initialized()))
        try:
            with PROFILERS.as_recorder():
                self._profiler._prepare_trace()
                self._profiler._start_trace()
                # This range tells the analysis that the profile has no steps.
                with self._torch.profiler.record_function(TIMED_NAME):
                    pass
        except BaseException:
            PROFILERS.ours = None
            raise
        return time.monotonic()

    def _must_end(self, end_s: float) -> bool:
        """Return whether the profile must end now; by default it ends at the monotonic time ``end_s``."""
        if self._over or self._interrupted or self._has_loop():
            return True
        remaining_s = end_s - time.monotonic()
        # At least half of the time is profiled, because the program's own memory may grow too, and look like events.
        is_full = remaining_s <= PROFILE_S / 2 and self._limit.events() >= MAX_EVENTS
        return remaining_s <= 0 or is_full

    def _stop(self) -> None:
        metadata = type("Metadata", (), {"add_metadata_json": staticmethod(self._torch.autograd._add_metadata_json)})
        try:
            name_gpus(metadata, self._torch)
            note_set_up(metadata, self._torch)
            with PROFILERS.as_recorder():
                self._profiler.__exit__(None, None, None)
        finally:
            PROFILERS.note_end_of_ours()

    def _write_trace(self, start_s: float, end_s: float, lines: Counter[str]) -> bool:
        """Write the trace if PyTorch ran anything, else a note with the main thread's most frequent line."""
        if not any("::" in event.name() for event in self._profiler.kineto_results.events()):
            self._note(why=NO_OPERATION, line=max(lines, key=lambda line: lines[line], default=""))
            return False
        part = self._settings.file(KIND, "part")
        with PROFILERS.as_recorder():
            self._profiler.export_chrome_trace(str(part))
        check_complete(part)
        self._note(after_s=start_s - self._load_s, seconds=end_s - start_s)
        part.replace(self._settings.file(KIND, "json"))
        return True

    def _note(self, **fields: object) -> None:
        with contextlib.suppress(OSError):
            self._settings.file(KIND, "note").write_text(json.dumps(fields))

    def interrupt(self) -> None:
        """End and discard the profile, because another profiler begins or the process forks."""
        self._interrupted = True
        deadline = time.monotonic() + MAX_INTERRUPT_S
        while PROFILERS.ours is self and time.monotonic() < deadline:
            time.sleep(0.001)

    def _before_fork(self) -> None:
        if PROFILERS.ours is self:  # The child would continue to record into its own memory.
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
        """Take no profile, because this process was forked."""
        self._over = True


def start(
    settings: HookSettings, torch: Any, has_loop: Callable[[], bool], optimizer_exists: Callable[[], bool]
) -> TimedProfile:
    """Start the timed profile of this process and return it."""
    profile = TimedProfile(settings, torch, has_loop, optimizer_exists)
    profile.begin()
    return profile


def main_thread_line() -> str:
    """Return the main thread's line of the user's code, such as train.py:12; "" if it runs none."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return line_at(frame) if frame is not None else ""


def call_in_main_thread(function: Callable[[], float | None], deadline_s: float) -> float | None:
    """Make the main thread call ``function`` between two instructions; return the result.

    The result is None if ``function`` failed, or if the main thread stayed inside one call until the monotonic time ``deadline_s``.
    """
    results: list[float | None] = []
    # If the main thread acquires this lock first, it calls ``function``. If this thread acquires the lock first, it gives up.
    decision = threading.Lock()

    def call(_: object) -> int:
        if decision.acquire(blocking=False):
            try:
                results.append(function())
            except BaseException:
                results.append(None)
        return 0

    pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
    _PENDING_CALLS.append(pending)  # Python may make the pending call much later, so the function must stay alive.
    if ctypes.pythonapi.Py_AddPendingCall(pending, None) != 0:
        return None
    while not results:
        if time.monotonic() > deadline_s and decision.acquire(blocking=False):
            return None
        time.sleep(POLL_PERIOD_S / 10)
    return results[0]


_PENDING_CALLS: list[object] = []


def notes_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the notes of all processes about their timed profiles."""
    for path in sorted(folder.glob(f"{KIND}-*.note")):
        with contextlib.suppress(OSError, ValueError):
            yield json.loads(path.read_text())
