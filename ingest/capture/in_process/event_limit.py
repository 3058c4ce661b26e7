"""Limit on the events in a profile, because writing many events pauses the training and takes memory.

PyTorch does not report how many events a running profile has. The number is estimated from the growth of the process's memory. Standard
library only.
"""

from __future__ import annotations

import ctypes
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path

# Ending and writing a profile takes 12 µs and 3.7 kB per operator (tests.benchmarks.many_operators), and longer on a busy host.
MAX_EVENTS = 150_000
EVENT_BYTES = 490  # Memory that an operator with its shapes takes while a profile runs (PyTorch 2.13 and 2.14).
PROBE_BYTES = 1 << 20  # An allocation of this size must show in glibc's statistics.
FIRST_WHOLE_STEP = 2  # A profile begins within a step, so the second step is the first whole one.
MIN_EVENT_S = 1e-6  # No operator takes less time while it is profiled. If memory grows faster, the training itself uses it.
# A step records at most this many times the operators of the smallest step. More growth is the training's own memory.
MAX_STEP_RATIO = 2.0


def anonymous_bytes() -> int:
    """Return the resident memory of this process that is not shared; 0 without Linux's /proc."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class _Allocations(ctypes.Structure):
    """The struct mallinfo2 of glibc 2.33 and newer."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    )


def memory_reading(*, uses_gpu: bool) -> Callable[[], int]:
    """Return the function that reads this process's memory in bytes.

    With a GPU, the function reads anonymous memory, which takes 0.02 ms. On a CPU, freed memory stays with the process for a while,
    so anonymous memory grows with the batches. There, the function reads the memory that glibc has allocated. This takes up to 15 ms
    if the heap has 200,000 free blocks, which would delay the launches of a profiled step on a GPU.
    """
    return anonymous_bytes if uses_gpu else _glibc_reading() or anonymous_bytes


@functools.cache
def _glibc_reading() -> Callable[[], int] | None:
    """Return the function that reads glibc's allocator; None if the process uses another allocator."""
    try:
        libc = ctypes.CDLL(None)
        statistics = libc.mallinfo2
        libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    except (AttributeError, OSError):
        return None
    statistics.restype = _Allocations

    def read() -> int:
        values = statistics()
        return int(values.uordblks + values.hblkhd)

    before, block = read(), libc.malloc(PROBE_BYTES)
    grew = read() - before >= PROBE_BYTES // 2
    libc.free(block)
    return read if grew else None


class EventLimit:
    """Estimate of the number of events in a profile that begins now.

    With a GPU, memory is measured from the end of the first step, because starting CUPTI takes memory as well.
    """

    def __init__(
        self,
        *,
        uses_gpu: bool = False,
        memory: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._memory, self._clock = memory or memory_reading(uses_gpu=uses_gpu), clock
        self.steps = 0  # The number of steps that have ended.
        self._unmeasured_steps = int(uses_gpu)  # The number of steps that end before memory is measured.
        self._first_memory, self._start_s = self._memory(), clock()
        self._step_memory = self._first_memory  # Memory at the start of the last whole step.
        self._smallest_step = float("inf")  # The number of events of the smallest whole step.

    def events(self) -> float:
        """Return the estimated number of events since the first reading.

        The number of events per step in the smallest whole step limits the estimate, because a training may allocate much memory once,
        such as buffers for its first large batch.
        """
        return self._events(self._memory())

    def _events(self, memory: int) -> float:
        by_memory = (memory - self._first_memory) / EVENT_BYTES
        by_time = (self._clock() - self._start_s) / MIN_EVENT_S
        by_smallest_step = MAX_STEP_RATIO * self._smallest_step * (self.steps + 1)
        return min(by_memory, by_time, by_smallest_step)

    def end_step(self) -> bool:
        """Note the end of a step; return whether a profile with one more step would have more than MAX_EVENTS."""
        self.steps += 1
        memory = self._memory()
        if self.steps >= FIRST_WHOLE_STEP:
            self._smallest_step = min(self._smallest_step, max(memory - self._step_memory, 0) / EVENT_BYTES)
        self._step_memory = memory
        if self.steps == self._unmeasured_steps:
            self._first_memory, self._start_s = memory, self._clock()
            return False
        events = self._events(memory)
        if self.steps == FIRST_WHOLE_STEP and events <= MAX_EVENTS:
            return False  # One whole step cannot show whether the training's own memory grew.
        if self.steps < FIRST_WHOLE_STEP:
            return False
        measured_steps = self.steps - self._unmeasured_steps
        return (self.steps + 1) / measured_steps * events > MAX_EVENTS
