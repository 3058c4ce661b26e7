"""Bytes that a loader reads from disk and from the page cache, and the memory available for the cache.

Linux counts reads from disk and from the page cache for each process, but not reads of mapped files. Other systems count neither.
Standard library only, because the recorder imports this module.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cores import GROUPS, PROC

MIN_DISK_SHARE = 0.1  # If a smaller share of the bytes comes from the disk, the loader rarely waits for the disk.
# If the disk delivered more than this many times the bytes read, the files are mapped, so their bytes are not counted. Read-ahead
# explains smaller factors.
MAX_READ_AHEAD = 2.0


@dataclass(frozen=True)
class FirstRead:
    """Reads of the first epoch of a dataset, compared with later epochs.

    ``disk_share``: share of the first epoch's bytes that came from the disk.
    ``sample_bytes``, ``sample_s``: bytes and seconds for one sample.
    ``samples``: samples in the dataset.
    ``room_bytes``: bytes of files that fitted into memory when the loaders began.
    ``later_share``: the disk's share in later epochs, None if no later epoch was recorded.
    ``later_ns``: start of the later epochs, in Unix nanoseconds.
    """

    disk_share: float
    sample_bytes: float
    sample_s: float
    samples: int
    room_bytes: float
    later_share: float | None = None
    later_ns: int | None = None

    @property
    def is_over(self) -> bool:
        """Whether the first epoch read from the disk and later epochs read from the cache."""
        return self.disk_share >= MIN_DISK_SHARE and self.later_share is not None and self.later_share < MIN_DISK_SHARE


def bytes_read(process: str = "self", proc: Path = PROC) -> tuple[int, int] | None:
    """Return the bytes that a process has read, and the bytes from a disk; None if they are not counted.

    ``process`` is ``self``, or ``thread-self`` for the current thread.
    """
    try:
        counts = dict(line.split(b": ") for line in (proc / process / "io").read_bytes().splitlines())
        return int(counts[b"rchar"]), int(counts[b"read_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def room_for_files(proc: Path = PROC, groups: Path = GROUPS) -> float | None:
    """Return the bytes of memory that this process can fill with cached files; None if unknown.

    The result is the available memory of the host or of the control group (a container's limit), whichever is smaller.
    """
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
    """Return the bytes of a group's memory limit that are free or hold files; infinite without a limit."""
    for limit_file, usage_file, prefix in (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ):
        try:
            limit = (group / limit_file).read_text().strip()
            if limit == "max":
                return math.inf
            files = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            file_bytes = sum(int(files[f"{prefix}{kind}_file"]) for kind in ("active", "inactive"))
            return int(limit) - int((group / usage_file).read_text()) + file_bytes
        except (OSError, ValueError, KeyError):
            continue
    return math.inf


def first_read(processes: Iterable[tuple[Mapping[str, Any], Sequence[dict[str, int]]]]) -> FirstRead | None:
    """Return the reads of a dataset's first epoch; None if they were not counted or are incomplete.

    ``processes`` are pairs of the header that a loader process wrote and its batches without the first one.
    A loader starts new worker processes for each epoch, or keeps them and numbers the epochs in their batches.
    The first epoch thus belongs to the first N processes of each training process, where N is the number of loader workers.
    """
    first, later = list[dict[str, int]](), list[dict[str, int]]()
    headers = list[Mapping[str, Any]]()
    process_counts: dict[int, int] = defaultdict(int)
    for header, batches in sorted((p for p in processes if p[1]), key=lambda p: p[1][0].get("at", 0)):
        process_counts[header.get("parent", 0)] += 1
        headers.append(header)
        is_first_worker = process_counts[header.get("parent", 0)] <= max(header["workers"], 1)
        for batch in batches:
            (first if is_first_worker and batch.get("epoch") == 1 else later).append(batch)
    rooms = [room for header in headers if (room := header.get("room")) is not None]
    sizes = {batch.get("of") for batch in (*first, *later)}
    complete = all("disk" in batch for batch in (*first, *later)) and len(sizes) == 1 and len(rooms) == len(headers)
    samples = sizes.pop() if complete else 0
    read, disk, count = (sum(batch.get(key, 0) for batch in first) for key in ("read", "disk", "n"))
    if not first or not samples or not read or disk > MAX_READ_AHEAD * read:
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
