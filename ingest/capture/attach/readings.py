"""What a process takes of its host while it is watched: cores, waits, memory, threads, by /proc. Nothing is paused. Standard library only."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from sawtooth.ingest.capture.attach.targets import PROC

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # a second has so many, in /proc/PID/stat
GIB = 2.0**30
LEAST_S = 0.5  # a shorter time says little of counts in hundredths of a second
GREW = 0.01  # of the memory it had: less is not worth a word


@dataclass(frozen=True)
class Reading:
    """Counts since a process began, and its memory and threads at ``at_ns`` of the monotonic clock."""

    at_ns: int
    cpu_s: float
    main_s: float  # of the main thread, on a core
    main_waits_s: float  # it was ready and had none
    memory_bytes: float
    threads: int


def read(pid: int, at_ns: int, proc: Path = PROC) -> Reading | None:
    """Read a process, None where it has ended or /proc does not tell."""
    folder = proc / str(pid)
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        used = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        on_core_ns, waited_ns, _ = map(int, (folder / f"task/{pid}/schedstat").read_text().split())
        status = dict(
            line.split(":", 1) for line in (folder / "status").read_text(errors="replace").splitlines() if ":" in line
        )
        cpu_s = (int(used[11]) + int(used[12])) / TICKS
        memory = 1024.0 * int(status["VmRSS"].split()[0])
        return Reading(at_ns, cpu_s, on_core_ns / 1e9, waited_ns / 1e9, memory, int(status["Threads"]))
    return None


def in_words(pid: int, first: Reading | None, last: Reading | None) -> str:
    """Say what a process took between two readings; "" where they tell nothing."""
    if first is None or last is None or last.at_ns - first.at_ns < LEAST_S * 1e9:
        return ""
    seconds = (last.at_ns - first.at_ns) / 1e9
    cores, main = (last.cpu_s - first.cpu_s) / seconds, (last.main_s - first.main_s) / seconds
    waits = (last.main_waits_s - first.main_waits_s) / seconds
    grew = last.memory_bytes - first.memory_bytes
    change = f" ({grew / GIB:+.2f} GiB in {seconds:.0f} s)" if abs(grew) > GREW * first.memory_bytes else ""
    return (
        f"Process {pid} used {cores:.2f} cores for {seconds:.0f} s. Its main thread ran {main:.0%} of the time and waited for a core {waits:.0%}. "
        f"It has {last.memory_bytes / GIB:.2f} GiB of memory{change} and {last.threads} threads."
    )
