"""Profile of a few seconds of a program in which nothing repeats.

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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ....loop.step_boundary import TIMED_NAME
from ...devices import name_gpus
from ...in_process.event_limit import MOST_EVENTS, EventLimit
from ...in_process.profilers import PROFILERS, cuda_tool
from ...in_process.set_up import note_set_up
from ..call_site import line_at
from ..graphs import GRAPHS
from ..parts import check_whole
from ..settings import HookSettings

KIND = "stretch"  # in file names, before the process; timed profiles were called stretches when the names were chosen
SECONDS = 2.0  # length of a profile; a program that launches kernels all the time makes 100,000 events in it
WAIT_FACTOR = 2.0  # factor on the least time before a loop's profile, because a loop may begin until then
LEAST_WAIT_S = 2.0
LEAST_SECONDS = 0.2  # A profile that the program's end makes shorter than this is dropped.
# Share of a core that the process must have used. A process that only waits (a launcher, a server's parent) is not profiled.
LEAST_CORE = 0.2
LOOK_S = 0.05  # between two checks
TO_START_S = 30.0  # The main thread may be inside one long call. After this time the start is tried again.
TO_END_S = 10.0  # A program's end waits at most this long for the trace; writing it usually takes less.
TO_GIVE_WAY_S = 2.0  # another profiler waits at most this long for ours to end; the same as for a profile of steps
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")  # NVIDIA's driver, the same in WSL, and AMD's
PATIENCE = 3.0  # additional factor on the wait if an optimizer exists, because its first step may come late
# Reasons why there is no trace: PyTorch before 2.7, PyTorch ran nothing, or the main thread stayed inside one call.
OLD, IDLE, INSIDE = "old", "idle", "inside"


class TimedProfile:
    """Profile SECONDS of a program, unless ``repeats()`` becomes true before.

    A thread of its own waits and ends the profile. The main thread begins it between two instructions, because Kineto prints an error if another
    thread prepares a process's first profile. All threads are profiled. It waits longer if ``trains()`` is true.
    """

    def __init__(self, settings: HookSettings, torch: Any, repeats: Callable[[], bool], trains: Callable[[], bool]) -> None:
        self._settings, self._torch, self._repeats, self._trains = settings, torch, repeats, trains
        self._over = False  # not an Event: a fork could copy its lock while it is locked
        self._interrupted = False
        self.gives_way = True  # to the profile of a loop's steps
        self._profiler: Any = None
        self._limit = EventLimit()
        self._loaded = time.monotonic()
        self._pid = os.getpid()
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, unless this process is one of several in a job, or another's worker."""
        s = self._settings
        main = threading.current_thread() is threading.main_thread()
        if s.steps > 0 and s.ranks == 1 and main and multiprocessing.parent_process() is None and cuda_tool() is None:
            self.thread = threading.Thread(target=self._run, name="sawtooth-timed-profile", daemon=True)
            self.thread.start()
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self._before_fork)

    def _run(self) -> None:
        began = time.process_time()
        wait_s = max(WAIT_FACTOR * self._settings.after_s, LEAST_WAIT_S)
        try:
            while not self._over and not self._repeats():
                time.sleep(LOOK_S)
                waited_s = time.monotonic() - self._loaded
                due = waited_s >= wait_s and waited_s >= wait_s * (PATIENCE if self._trains() else 1)
                computes = time.process_time() - began >= LEAST_CORE * waited_s
                if due and computes and self._is_imported() and self._may_begin():
                    if self._profiled():
                        return
                    wait_s = 2 * (time.monotonic() - self._loaded)  # nothing ran: try again after twice the time
        except Exception:  # the program must not notice
            self._over = True

    def _is_imported(self) -> bool:
        return not getattr(self._torch.__spec__, "_initializing", False)

    def _new_profiler(self) -> Any:
        """Return a profiler of all threads; None in a PyTorch without it."""
        try:  # Nothing is imported here: the main thread may be importing the same, and then see half of it.
            of_all = self._torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
        except TypeError:
            return None
        device = "cuda" if self._torch.cuda.is_initialized() else None
        return self._torch.autograd.profiler.profile(
            use_cpu=True,
            use_device=device,
            record_shapes=True,
            with_stack=self._settings.stacks,
            use_kineto=True,
            experimental_config=of_all,
        )

    def _may_begin(self) -> bool:
        """Return whether a profile would see the GPU, if there is one.

        A profile before CUDA is initialized would keep every later one in this process from it.
        """
        uses_gpu = self._torch.cuda.is_initialized()
        return not PROFILERS.busy and not GRAPHS.capturing and (uses_gpu or not any(map(os.path.exists, GPU_FILES)))

    def _profiled(self) -> bool:
        """Take the profile; return whether its trace was written, or none can be."""
        self._profiler = self._new_profiler()
        if self._profiler is None:
            self._note(why=OLD)
            return True
        until = time.monotonic() + TO_START_S
        began = in_main_thread(self._start, until)
        if began is None:
            if time.monotonic() > until:
                self._note(why=INSIDE, line=line_of_main())
            return False
        lines: Counter[str] = Counter()
        while not self._ends(began + SECONDS):
            lines[line_of_main()] += 1
            time.sleep(LOOK_S)
        with GRAPHS.none_captured():
            ended = time.monotonic()
            self._stop()
        dropped = self._interrupted or self._repeats() or ended - began < LEAST_SECONDS
        written = not dropped and self._written(began, ended, lines)
        self._profiler = None  # frees 4 kB for each operator
        return written

    def _start(self) -> float | None:
        """Begin the profile, on the main thread; return when, or None if it may not begin now."""
        if self._over or self._repeats() or not self._may_begin():
            return None
        PROFILERS.detaching.begin()
        PROFILERS.silence.begin(self._torch)
        PROFILERS.ours, self._interrupted, self._limit = self, False, EventLimit()
        try:
            with PROFILERS.by_us():
                self._profiler._prepare_trace()
                self._profiler._start_trace()
                with self._torch.profiler.record_function(TIMED_NAME):  # Without it, steps would be inferred by chance.
                    pass
        except BaseException:
            PROFILERS.ours = None
            raise
        return time.monotonic()

    def _ends(self, at: float) -> bool:
        left_s = at - time.monotonic()  # The program's own memory may grow as well, so at least half of the time is profiled.
        return left_s <= 0 or (left_s <= SECONDS / 2 and self._limit.events() >= MOST_EVENTS) or self._is_unwanted()

    def _is_unwanted(self) -> bool:
        return self._over or self._interrupted or self._repeats()

    def _stop(self) -> None:
        add = type("Metadata", (), {"add_metadata_json": staticmethod(self._torch.autograd._add_metadata_json)})
        try:
            name_gpus(add, self._torch)
            note_set_up(add, self._torch)
            with PROFILERS.by_us():
                self._profiler.__exit__(None, None, None)
        finally:
            PROFILERS.ours = None

    def _written(self, began: float, ended: float, lines: Counter[str]) -> bool:
        """Write the trace if PyTorch ran anything, else the main thread's most frequent line."""
        if not any("::" in event.name() for event in self._profiler.kineto_results.events()):
            self._note(why=IDLE, line=max(lines, key=lambda line: lines[line], default=""))
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
        until = time.monotonic() + TO_GIVE_WAY_S
        while PROFILERS.ours is self and time.monotonic() < until:
            time.sleep(0.001)

    def _before_fork(self) -> None:
        if PROFILERS.ours is self:  # Otherwise the child would continue to record into its memory.
            self.interrupt()

    def finish(self) -> None:
        """End the profile at the process's end and write what was recorded."""
        self._over = True
        if PROFILERS.ours is self and self.thread is not None and threading.current_thread() is not self.thread:
            self.thread.join(TO_END_S)

    def leave(self) -> None:
        """Write nothing more, because the process ends at once."""
        self._over = True

    def forget(self) -> None:
        """Do nothing more, in a process that was forked."""
        self._over = True


def start(settings: HookSettings, torch: Any, repeats: Callable[[], bool], trains: Callable[[], bool]) -> TimedProfile:
    """Start the timed profile of this process and return it."""
    profile = TimedProfile(settings, torch, repeats, trains)
    profile.begin()
    return profile


def line_of_main() -> str:
    """Return the main thread's line of the user's code, such as train.py:12; "" if it runs none."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return line_at(frame) if frame is not None else ""


def in_main_thread(act: Callable[[], float | None], until: float) -> float | None:
    """Have the main thread run ``act`` between two instructions; return its result.

    The result is None if ``act`` failed, or if the main thread stays inside one call until the monotonic time ``until``.
    """
    results: list[float | None] = []
    decision = threading.Lock()  # whoever acquires it first decides: the main thread acts, or this thread gives up

    def acts(_: object) -> int:
        if decision.acquire(blocking=False):
            try:
                results.append(act())
            except BaseException:
                results.append(None)
        return 0

    pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(acts)
    _KEPT.append(pending)  # Python may call it much later
    if ctypes.pythonapi.Py_AddPendingCall(pending, None) != 0:
        return None
    while not results:
        if time.monotonic() > until and decision.acquire(blocking=False):
            return None
        time.sleep(LOOK_S / 10)
    return results[0]


_KEPT: list[object] = []


def notes_of(folder: Path) -> Iterable[dict[str, Any]]:
    """Return what the processes noted about their timed profiles."""
    for path in sorted(folder.glob(f"{KIND}-*.note")):
        with contextlib.suppress(OSError, ValueError):
            yield json.loads(path.read_text())
