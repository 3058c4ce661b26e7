"""What a loader's processes read from the disk and what from the page cache, and how many bytes of files that cache could hold.

Linux counts both for each process; elsewhere, and for files that are mapped instead of read, nothing is said. Standard library only: it is part of
the recorder.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cores import GROUPS, PROC

FROM_CACHE = 0.1  # of what is read: with less from the disk its waits are few
MAPPED = 2.0  # times what was read, in what the disk gave: reading ahead explains no more, so that the files are mapped and what they hold is not known


@dataclass(frozen=True)
class FirstRead:
    """The first epoch of a dataset of ``samples``: ``disk_share`` of the bytes that it read came from the disk, each of its samples read ``sample_bytes``
    and took ``sample_s``. ``later_share`` is the same share of later epochs, which began at ``later_ns`` (Unix); None where none was seen. ``room_bytes``
    of files fit into the memory that was free when the loaders began."""

    disk_share: float
    sample_bytes: float
    sample_s: float
    samples: int
    room_bytes: float
    later_share: float | None = None
    later_ns: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether later epochs came from the cache what the first did not."""
        return self.disk_share >= FROM_CACHE and self.later_share is not None and self.later_share < FROM_CACHE


def bytes_read(of: str = "self", proc: Path = PROC) -> tuple[int, int] | None:
    """Return the bytes that a process (``self``), or a thread of it (``thread-self``), has read and those of them that a disk gave; None where the
    system does not tell."""
    try:
        counts = dict(line.split(b": ") for line in (proc / of / "io").read_bytes().splitlines())
        return int(counts[b"rchar"]), int(counts[b"read_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def room_for_files(proc: Path = PROC, groups: Path = GROUPS) -> float | None:
    """Return the bytes that files can fill of the memory that this process may use: what is available on the host, or in its control group (a
    container's limit) where that is less. None where the system does not tell."""
    try:
        lines = (proc / "meminfo").read_text().splitlines()
        room = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        for line in (proc / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            below, root = Path(path.lstrip("/")), groups / "memory" if controllers else groups
            if ".." not in below.parts and (not controllers or "memory" in controllers.split(",")):
                room = min(room, *(_room_in(root / part) for part in (below, *below.parents)))
    except (OSError, ValueError, StopIteration, IndexError):
        return None
    return max(room, 0.0)


def _room_in(group: Path) -> float:
    """Return the bytes that files can fill of a group's limit: what nothing uses, and what files fill already; infinite without a limit."""
    for most, used, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        try:
            limit = (group / most).read_text().strip()
            if limit == "max":
                return math.inf
            files = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            filled = sum(int(files[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
            return int(limit) - int((group / used).read_text()) + filled
        except (OSError, ValueError, KeyError):
            continue
    return math.inf


def first_read(processes: Iterable[tuple[Mapping[str, Any], Sequence[dict[str, int]]]]) -> FirstRead | None:
    """Return what the first epoch of one dataset read; None where it was not counted or is not all that is known of it.

    ``processes`` are pairs of what a process of a loader said first and its batches but the first. An epoch has processes of its own, or a number in those
    that stay: its first are as many as the loader has workers, for each process that trains.
    """
    first, later = list[dict[str, int]](), list[dict[str, int]]()
    heads = list[Mapping[str, Any]]()
    begun: dict[int, int] = defaultdict(int)
    for head, batches in sorted((p for p in processes if p[1]), key=lambda p: p[1][0].get("at", 0)):
        begun[head.get("parent", 0)] += 1
        heads.append(head)
        its_first = begun[head.get("parent", 0)] <= max(head["workers"], 1)
        for batch in batches:
            (first if its_first and batch.get("epoch") == 1 else later).append(batch)
    rooms, sizes = (
        [room for head in heads if (room := head.get("room")) is not None],
        {batch.get("of") for batch in (*first, *later)},
    )
    known = all("disk" in batch for batch in (*first, *later)) and len(sizes) == 1 and len(rooms) == len(heads)
    samples = sizes.pop() if known else 0
    read, disk, count = (sum(batch.get(key, 0) for batch in first) for key in ("read", "disk", "n"))
    if not first or not samples or not read or disk > MAPPED * read:
        return None
    wall_ns = sum(batch["wall"] - batch["collate"] for batch in first)
    begin = FirstRead(min(disk / read, 1.0), max(read, disk) / count, wall_ns / count / 1e9, samples, min(rooms))
    later_read = sum(batch["read"] for batch in later)
    if not later_read:
        return begin
    share = min(sum(batch["disk"] for batch in later) / later_read, 1.0)
    return FirstRead(
        begin.disk_share, begin.sample_bytes, begin.sample_s, samples, begin.room_bytes, share, min(b["at"] for b in later)
    )
