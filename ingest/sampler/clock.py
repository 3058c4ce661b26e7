"""Clocks of the sampler, passed in as an object so that tests can replace them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str | None:
    """Return the kernel's boot id, or None if unknown.

    Monotonic times of two recordings can be compared only if the recordings have equal boot ids.
    """
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None


def _monotonic_ns() -> int:
    # CLOCK_MONOTONIC stops while the machine is suspended. With CLOCK_BOOTTIME, a suspension shows as a telemetry gap.
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime_ns(boottime) if boottime is not None else time.monotonic_ns()


def _wait(event: threading.Event, seconds: float) -> bool:
    return event.wait(seconds)


@dataclass(frozen=True)
class SamplerClock:
    """Wall clock, monotonic clock and CPU time of this process (nanoseconds), and a wait with a limit."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = _monotonic_ns
    cpu_ns: Callable[[], int] = time.process_time_ns
    wait: Callable[[threading.Event, float], bool] = _wait
