"""The clocks the sampler lives by, injected so that tests need no waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


def _monotonic_ns() -> int:
    # CLOCK_MONOTONIC stands still while the machine is suspended; a suspended hour must show as a gap.
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime_ns(boottime) if boottime is not None else time.monotonic_ns()


def _wait(event: threading.Event, seconds: float) -> bool:
    return event.wait(seconds)


@dataclass(frozen=True)
class Clock:
    """Wall and monotonic nanoseconds, this process's CPU nanoseconds, and waiting for an event with a time limit."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = _monotonic_ns
    cpu_ns: Callable[[], int] = time.process_time_ns
    wait: Callable[[threading.Event, float], bool] = _wait
