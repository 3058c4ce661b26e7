"""Profile some steps of a training loop with torch.profiler; the training continues if it fails."""

from __future__ import annotations

import contextlib
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .devices import AllocatorNotes, name_gpus
from .in_process.exit_actions import at_thread_end, skip_destructors
from .in_process.memory_history import MemoryHistory
from .in_process.profilers import PROFILERS
from .in_process.set_up import note_set_up

# If another thread begins a profiler, it waits at most this long for the loop's next step, at which the recorder's profile ends.
MAX_INTERRUPT_S = 2.0


class StepProfiler:
    """Profile of ``warmup`` and then ``active`` steps, written into ``trace``.

    Call ``step`` after each step. If ``active`` is None, all steps until ``stop`` are profiled. ``options`` go to torch.profiler.profile.
    ``memory`` is the file of a snapshot of the CUDA allocator with its history since the profile began (None: no snapshot).

    The constructor starts the profiler. If PyTorch raises an error, the constructor stops the profiler and raises the error again. The
    constructor raises RuntimeError while another profiler runs. A profiler that begins later ends this profile. The profile is then
    ``interrupted`` and has no trace.

    PyTorch ends a profile only on the thread that began it. So the profile ends at the latest when this thread ends. If another thread
    calls ``stop``, the profile is ``interrupted`` too. It then runs until the thread that began it takes a step or ends.
    """

    def __init__(
        self,
        torch: Any,
        trace: Path,
        *,
        warmup: int = 0,
        active: int | None = None,
        options: Mapping[str, Any] = MappingProxyType({}),
        memory: Path | None = None,
    ) -> None:
        if PROFILERS.busy:
            raise RuntimeError("another profiler of PyTorch runs in this process")
        self.trace = trace
        self.interrupted = False
        self._thread = threading.get_ident()
        self._writes_trace, self._ended = True, False
        # Number of steps until the profile ends by itself; None if only ``stop`` ends it.
        self._steps_left = warmup + active if active is not None else None
        kinds = torch.profiler.ProfilerActivity
        activities = [kinds.CPU, *([kinds.CUDA] if torch.cuda.is_available() else ())]
        schedule = torch.profiler.schedule(wait=0, warmup=warmup, active=active, repeat=1) if active is not None else None
        self._memory_file, self._memory = memory, MemoryHistory()
        self._profiler = torch.profiler.profile(
            schedule=schedule, on_trace_ready=self._write, **{"activities": activities, "record_shapes": True, **options}
        )
        PROFILERS.detaching.begin()
        PROFILERS.silence.begin(torch)
        PROFILERS.ours = self
        try:
            with _without_warnings(), PROFILERS.as_recorder():
                self._profiler.start()
        except BaseException:  # A part of the profiler may already run, and would slow every later step.
            self.abandon()
            raise
        at_thread_end(self._end_with_thread)
        name_gpus(self._profiler, torch)
        note_set_up(self._profiler, torch)
        self._allocator = AllocatorNotes(torch)
        if memory is not None:
            self._memory.begin(torch)

    @property
    def on_own_thread(self) -> bool:
        """Return whether this is the thread that began the profile."""
        return threading.get_ident() == self._thread

    @property
    def writes_trace(self) -> bool:
        """Return whether ``stop`` writes the trace, or has written it."""
        return not self.interrupted and (self._ended or self.on_own_thread)

    def step(self) -> None:
        """Note the end of a step."""
        if self.interrupted or not self.on_own_thread:
            return
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._allocator.write(self._profiler)
        with PROFILERS.as_recorder():
            self._profiler.step()

    def stop(self) -> None:
        """End the profile and write its trace, unless the profile was abandoned."""
        if self._ended:
            return
        if not self.on_own_thread:
            self.interrupted, self._writes_trace, PROFILERS.stopping = True, False, self
            skip_destructors()  # Destructors would crash while a profile runs.
            return
        self._ended = True
        if self._writes_trace and (self._steps_left is None or self._steps_left > 0):
            self._allocator.write(self._profiler)
        if not self._writes_trace:  # The memory snapshot is written first, because ending the profile may take a minute.
            self._memory.end(None if self.interrupted else self._memory_file)
        try:
            with _without_warnings(), PROFILERS.as_recorder():
                self._profiler.stop()
        finally:
            PROFILERS.note_end_of_ours()
            self._memory.end(self._memory_file)

    def abandon(self) -> None:
        """End and discard the profile."""
        self._writes_trace = False
        with contextlib.suppress(Exception):
            self.stop()
        self.trace.unlink(missing_ok=True)

    def interrupt(self) -> None:
        """End and discard the profile, because another profiler is about to begin."""
        self.interrupted = True
        if self.on_own_thread:
            self.abandon()
        deadline = time.monotonic() + MAX_INTERRUPT_S
        while PROFILERS.ours is self and time.monotonic() < deadline:
            time.sleep(0.001)

    def _end_with_thread(self) -> None:
        with contextlib.suppress(Exception):  # The training's thread must not fail.
            self.abandon() if self.interrupted else self.stop()

    def _write(self, profiler: Any) -> None:
        if self._writes_trace:  # Writing an abandoned trace would take seconds, and the process may be about to end.
            profiler.export_chrome_trace(str(self.trace))
        # Free the results (4 kB per operator) now. They are in a reference cycle, so a garbage collection would free them during a step.
        profiler.profiler = None


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Hide warnings of torch.profiler about settings that the user did not choose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
