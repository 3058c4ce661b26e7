"""Limit on the size of a profile: writing many events pauses the training, and takes its memory.

PyTorch does not report the number of events of a running profile, so it is estimated from the memory that the process gained. Standard library only.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

# Ending and writing a profile takes 12 µs and 3.7 kB for each operator (tests.benchmarks.many_operators), more on a busy host.
MOST_EVENTS = 150_000
EVENT_BYTES = 490  # anonymous memory for each operator with its shapes, while a profile runs (PyTorch 2.13)
LEAST_STEPS = 2  # A profile begins within a step, so the second one ends the first whole step.
LEAST_EVENT_S = 1e-6  # No operator takes less time while it is profiled. A faster growth is the training's own.
STEPS_DIFFER = (
    2.0  # Steps record different numbers of operators. More than this times the smallest step is the training's own memory.
)


def anonymous_bytes() -> int:
    """Return the memory of this process that is not shared; 0 where Linux's /proc is missing."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    except (OSError, ValueError):
        return 0
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class EventLimit:
    """Estimate of the events of a profile that begins now.

    With ``after_first`` its first step is estimated from the later ones, because starting CUPTI takes memory as well.
    """

    def __init__(
        self,
        *,
        after_first: bool = False,
        memory: Callable[[], int] = anonymous_bytes,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._memory, self._clock = memory, clock
        self.steps, self._without = 0, int(after_first)  # ended steps, and how many of them before the memory is first read
        self._base, self._began = memory(), clock()
        self._step_base, self._smallest = self._base, float("inf")  # of a whole step: memory at its start, fewest events

    def events(self) -> float:
        """Return the estimated number of events since the first reading.

        A training may gain much memory once, such as buffers of its first large batch. So the smallest whole step bounds the
        estimate.
        """
        gained = min((self._memory() - self._base) / EVENT_BYTES, (self._clock() - self._began) / LEAST_EVENT_S)
        return min(gained, STEPS_DIFFER * self._smallest * (self.steps + 1))

    def is_reached(self) -> bool:
        """Note the end of a step; return whether one more step would be too many events."""
        self.steps += 1
        memory = self._memory()
        if self.steps >= LEAST_STEPS:  # the first step is not whole
            self._smallest = min(self._smallest, max(memory - self._step_base, 0) / EVENT_BYTES)
        self._step_base = memory
        if self.steps == self._without:
            self._base, self._began = memory, self._clock()
            return False
        events = self.events()
        if self.steps == LEAST_STEPS and events <= MOST_EVENTS:
            return False  # one whole step cannot show whether the training's own memory grew
        return self.steps >= LEAST_STEPS and (self.steps + 1) / (self.steps - self._without) * events > MOST_EVENTS
