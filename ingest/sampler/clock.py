"""The clocks the sampler lives by, injected so that tests need no waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """Return the kernel's boot id: monotonic times of two recordings compare only where it is the same."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


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
