"""CPU time, waits, memory and threads of a process, read from /proc without pausing it.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from sawtooth.ingest.capture.attach.targets import PROC

TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # /proc/PID/stat counts CPU time in these ticks.
GIB = 2.0**30
MIN_PERIOD_S = 0.5  # The kernel counts in hundredths of a second, so the use in a shorter time is not precise.
MIN_GROWTH = 0.01  # A change by a smaller share of the first memory reading is not reported.


@dataclass(frozen=True)
class ProcessReading:
    """CPU and wait times since a process began, and its memory and threads at ``at_ns`` (monotonic clock).

    ``main_s`` is the time of the main thread on a core. ``main_waits_s`` is the time in which the main thread waited for a core.
    """

    at_ns: int
    cpu_s: float
    main_s: float
    main_waits_s: float
    memory_bytes: float
    threads: int


def read(pid: int, at_ns: int, proc: Path = PROC) -> ProcessReading | None:
    """Read a process; None if it has ended or /proc lacks the values."""
    folder = proc / str(pid)
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        used = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        on_core_ns, waited_ns, _ = map(int, (folder / f"task/{pid}/schedstat").read_text().split())
        status = dict(
            line.split(":", 1) for line in (folder / "status").read_text(errors="replace").splitlines() if ":" in line
        )
        cpu_s = (int(used[11]) + int(used[12])) / TICKS_PER_S
        memory = 1024.0 * int(status["VmRSS"].split()[0])
        return ProcessReading(at_ns, cpu_s, on_core_ns / 1e9, waited_ns / 1e9, memory, int(status["Threads"]))
    return None


def in_words(pid: int, first: ProcessReading | None, last: ProcessReading | None) -> str:
    """Describe what a process used between two readings; "" if the readings are too close or missing."""
    if first is None or last is None or last.at_ns - first.at_ns < MIN_PERIOD_S * 1e9:
        return ""
    seconds = (last.at_ns - first.at_ns) / 1e9
    cores, main = (last.cpu_s - first.cpu_s) / seconds, (last.main_s - first.main_s) / seconds
    waits = (last.main_waits_s - first.main_waits_s) / seconds
    growth = last.memory_bytes - first.memory_bytes
    change = f" ({growth / GIB:+.2f} GiB in {seconds:.0f} s)" if abs(growth) > MIN_GROWTH * first.memory_bytes else ""
    return (
        f"Process {pid} used {cores:.2f} cores on average over {seconds:.0f} s. Its main thread ran for {100 * main:.0f} % of the time and waited for a core for {100 * waits:.0f} %. "
        f"It has {last.memory_bytes / GIB:.2f} GiB of memory{change} and {last.threads} threads."
    )
