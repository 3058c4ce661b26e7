"""The use of a GPU's memory at its peak, the cache's fragmentation, and failed allocations.

The peak is computed from the recorded events. Events before the recording, or dropped from the allocator's buffer, are not
included. Sizes are rounded up as in the allocator, so the sums equal ``torch.cuda.memory_allocated``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sawtooth.analysis.dumps.fragmentation import FailedAllocation, Fragmentation, failed_at, fragmentation_of
from sawtooth.analysis.dumps.stacks import ALLOCATED_BEFORE, Purpose, frames_of, purpose_of
from sawtooth.ingest.dumps.memory_snapshot import AllocationEvent, Annotation, Segment, Snapshot

ROUND_BYTES = 512  # PyTorch's allocator rounds sizes up to a multiple of this (kMinBlockSize).
CURVE_POINTS = 400  # A drawn curve has at most this many points.


@dataclass(frozen=True)
class Allocation:
    """A block in use from event ``start`` (-1: before all events) to event ``end`` (None: never freed)."""

    address: int
    size: int
    start: int
    end: int | None
    frames: Any


@dataclass(frozen=True)
class Holder:
    """The blocks in use at the peak with the same purpose: its name, their bytes and their number."""

    name: str
    size: int
    blocks: int


@dataclass(frozen=True)
class DeviceMemory:
    """The memory of one GPU: the peak and its use, the bytes at the end, and failed allocations.

    ``events`` is the number of events. ``categories``, ``modules`` and ``stacks`` (the user's lines) each divide the peak by
    purpose. ``curve`` has times in s since the first event, and bytes in use.
    """

    device: int
    events: int
    peak_bytes: int
    peak_at_s: float | None
    end_bytes: int
    categories: tuple[Holder, ...]
    modules: tuple[Holder, ...]
    stacks: tuple[Holder, ...]
    fragmentation: Fragmentation
    failed: tuple[FailedAllocation, ...]
    curve: tuple[tuple[float, int], ...]


def held_memory(snapshot: Snapshot) -> list[DeviceMemory]:
    """Return the memory of each device that has segments or events in the snapshot."""
    devices = sorted({s.device for s in snapshot.segments} | {d for d, events in enumerate(snapshot.device_traces) if events})
    return [_of_device(device, snapshot) for device in devices]


def _of_device(device: int, snapshot: Snapshot) -> DeviceMemory:
    events = snapshot.device_traces[device] if device < len(snapshot.device_traces) else []
    segments = [segment for segment in snapshot.segments if segment.device == device]
    allocations = allocations_of(events, segments)
    in_use = _in_use(allocations, len(events))
    peak = int(np.argmax(in_use))  # Index 0 is the time before the first event.
    live = [a for a in allocations if a.start < peak and (a.end is None or a.end >= peak)]
    ranges = _Ranges([a for a in snapshot.external_annotations if a.device == device])
    stacks_recorded = any(event.frames for event in events)
    purposes = [_purpose(allocation, events, ranges, stacks_recorded) for allocation in live]
    times = [event.time_us for event in events]
    first = next((time for time in times if time is not None), None)
    at = times[peak - 1] if peak else first
    return DeviceMemory(
        device,
        len(events),
        int(in_use[peak]),
        (at - first) / 1e6 if at is not None and first is not None else None,
        int(in_use[-1]),
        _holders(live, [purpose.category for purpose in purposes]),
        _holders(live, [purpose.module for purpose in purposes]),
        _holders(live, [purpose.line for purpose in purposes]),
        fragmentation_of(segments),
        tuple(failed_at(i, events, segments, allocations) for i, event in enumerate(events) if event.action == "oom"),
        _curve(in_use, times, first),
    )


def round_size(size: int) -> int:
    """Return the bytes that the allocator uses for a block of ``size``."""
    return -(-size // ROUND_BYTES) * ROUND_BYTES


def allocations_of(events: Sequence[AllocationEvent], segments: Sequence[Segment]) -> list[Allocation]:
    """Return all blocks that were in use at any time of the recording."""
    open_: dict[int, tuple[int, AllocationEvent]] = {}
    allocations: list[Allocation] = []
    for i, event in enumerate(events):
        if event.action == "alloc":
            open_[event.addr] = (i, event)
        elif event.action == "free_requested":
            start, allocation = open_.pop(event.addr, (-1, None))
            allocations.append(
                Allocation(event.addr, round_size(event.size), start, i, allocation.frames if allocation is not None else None)
            )
    allocations += [
        Allocation(address, round_size(allocation.size), start, None, allocation.frames)
        for address, (start, allocation) in open_.items()
    ]
    for segment in segments:
        for address, block in segment.placed:
            if block.state == "active_allocated" and address not in open_:
                allocations.append(Allocation(address, block.size, -1, None, block.frames or None))
    return allocations


def _in_use(allocations: Sequence[Allocation], events: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bytes in use before the first event and after each event."""
    change = np.zeros(events + 1, np.int64)
    for allocation in allocations:
        change[allocation.start + 1] += allocation.size
        if allocation.end is not None:
            change[allocation.end + 1] -= allocation.size
    total: np.ndarray[Any, np.dtype[np.int64]] = np.cumsum(change)
    return total


def _purpose(allocation: Allocation, events: Sequence[AllocationEvent], ranges: _Ranges, stacks_recorded: bool) -> Purpose:
    frames = frames_of(allocation.frames)
    if allocation.start < 0 and not frames:
        return Purpose(ALLOCATED_BEFORE)
    time = events[allocation.start].time_us if allocation.start >= 0 else None
    return purpose_of(
        frames,
        lasts=allocation.end is None,
        range_name=ranges.at(time) if time is not None else "",
        stacks_recorded=stacks_recorded,
    )


def _holders(live: Sequence[Allocation], names: Sequence[str]) -> tuple[Holder, ...]:
    sums: dict[str, list[int]] = {}
    for allocation, name in zip(live, names, strict=True):
        row = sums.setdefault(name, [0, 0])
        row[0] += allocation.size
        row[1] += 1
    return tuple(sorted((Holder(name, *row) for name, row in sums.items()), key=lambda holder: (-holder.size, holder.name)))


def _curve(
    in_use: np.ndarray[Any, np.dtype[np.int64]], times: Sequence[int | None], first: int | None
) -> tuple[tuple[float, int], ...]:
    """Return at most CURVE_POINTS points (s, bytes): the largest of each interval."""
    if first is None or len(in_use) < 2:
        return ()
    pieces = np.array_split(np.arange(1, len(in_use)), min(CURVE_POINTS, len(in_use) - 1))
    tops = [int(piece[np.argmax(in_use[piece])]) for piece in pieces]
    return tuple((((times[top - 1] or first) - first) / 1e6, int(in_use[top])) for top in tops)


class _Ranges:
    """The open annotation of a device at each time: the innermost one with a module's name in parentheses."""

    def __init__(self, annotations: Sequence[Annotation]) -> None:
        self._times: list[int] = []
        self._names: list[str] = []
        open_: list[str] = []
        for allocation in sorted(annotations, key=lambda annotation: annotation.time_us):
            if allocation.stage == "START":
                open_.append(allocation.name)
            elif allocation.name in open_:
                del open_[len(open_) - 1 - open_[::-1].index(allocation.name)]
            self._times.append(allocation.time_us)
            self._names.append(next((name for name in reversed(open_) if name.endswith(")")), ""))

    def at(self, time_us: int) -> str:
        """Return the name of the annotation at a time; "" if none is open."""
        position = bisect_right(self._times, time_us) - 1
        return self._names[position] if position >= 0 else ""
