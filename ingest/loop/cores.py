"""The cores that a process may use: by its affinity and its control group, since a host's own count says neither.

Standard library only: it is part of the recorder. What a system does not tell leaves the count as it is.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

PROC, GROUPS, NODES = Path("/proc"), Path("/sys/fs/cgroup"), Path("/sys/devices/system/node")


def allowed_cores(pid: int = 0) -> frozenset[int]:
    """Return the numbers of the cores that the scheduler gives process ``pid`` (0: this one, as for one that has ended); all of the host's where the system
    does not tell."""
    for asked in (pid, 0):
        with contextlib.suppress(OSError, AttributeError):
            return frozenset(os.sched_getaffinity(asked))
    return frozenset(range(os.cpu_count() or 1))


def usable_cores(pid: int = 0, proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Return how many cores process ``pid`` (0: this one) may use at a time: those allowed, or what its control group grants, rounded up, where that is
    less (a container's limit)."""
    return max(math.ceil(min(len(allowed_cores(pid)), _granted(pid, proc, groups))), 1)


def _granted(pid: int, proc: Path, groups: Path) -> float:
    """Return the cores' worth of time that the control groups of ``pid`` grant it, infinite without a limit."""
    granted = math.inf
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / (str(pid) if pid else "self") / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            below, root = Path(path.lstrip("/")), groups / "cpu" if controllers else groups
            if ".." in below.parts or (controllers and "cpu" not in controllers.split(",")):
                continue
            granted = min(granted, *(_limit(root / part) for part in (below, *below.parents)))
    return granted


def _limit(group: Path) -> float:
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


def core_groups(nodes: Path = NODES) -> list[frozenset[int]]:
    """Return the cores of each memory node (a socket or a part of one); empty where there is one or the system does not tell."""
    groups = []
    with contextlib.suppress(OSError, ValueError):
        groups = [_listed(path.read_text()) for path in sorted(nodes.glob("node[0-9]*/cpulist"))]
    groups = [group for group in groups if group]  # a node may have memory alone
    return groups if len(groups) > 1 else []


def _listed(text: str) -> frozenset[int]:
    """Return the numbers of a list as the kernel writes it: ``0-3,8``."""
    pairs = (part.partition("-") for part in text.strip().split(",") if part)
    return frozenset(core for first, _, last in pairs for core in range(int(first), int(last or first) + 1))
