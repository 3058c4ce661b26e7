"""CPU cores that a process may use, from its affinity and its control group.

The host's own core count includes neither limit. A limit that the system does not report is ignored.
Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

PROC, GROUPS, NODES = Path("/proc"), Path("/sys/fs/cgroup"), Path("/sys/devices/system/node")


def allowed_cores(pid: int = 0) -> frozenset[int]:
    """Return the numbers of the cores in the affinity mask of process ``pid`` (0: this process).

    If the process has ended, the mask of this process is used. If the system has no masks, all cores of the host are returned.
    """
    for process in (pid, 0):
        with contextlib.suppress(OSError, AttributeError):
            return frozenset(os.sched_getaffinity(process))
    return frozenset(range(os.cpu_count() or 1))


def usable_cores(pid: int = 0, proc: Path = PROC, groups: Path = GROUPS) -> int:
    """Return the number of cores that process ``pid`` (0: this process) may use at the same time.

    The result is the smaller one of the number of allowed cores and the limit of the control group (such as a container's), rounded up.
    """
    return max(math.ceil(min(len(allowed_cores(pid)), _cpu_limit(pid, proc, groups))), 1)


def _cpu_limit(pid: int, proc: Path, groups: Path) -> float:
    """Return the CPU limit of the control groups of ``pid``, in cores; infinite without a limit."""
    cores = math.inf
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / (str(pid) if pid else "self") / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            group_path, root = Path(path.lstrip("/")), groups / "cpu" if controllers else groups
            if ".." in group_path.parts or (controllers and "cpu" not in controllers.split(",")):
                continue
            cores = min(cores, *(_limit(root / part) for part in (group_path, *group_path.parents)))
    return cores


def _limit(group: Path) -> float:
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    return math.inf


def core_groups(nodes: Path = NODES) -> list[frozenset[int]]:
    """Return the cores of each NUMA node (a socket or a part of a socket); [] for one or unknown nodes."""
    groups = []
    with contextlib.suppress(OSError, ValueError):
        groups = [_parse_list(path.read_text()) for path in sorted(nodes.glob("node[0-9]*/cpulist"))]
    groups = [group for group in groups if group]  # A node may have memory but no cores.
    return groups if len(groups) > 1 else []


def _parse_list(text: str) -> frozenset[int]:
    """Parse a list of core numbers in the kernel's format, such as ``0-3,8``."""
    pairs = (part.partition("-") for part in text.strip().split(",") if part)
    return frozenset(core for first, _, last in pairs for core in range(int(first), int(last or first) + 1))
