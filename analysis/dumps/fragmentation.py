"""Free memory that PyTorch's allocator cannot use, and allocations that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sawtooth.analysis.dumps.stacks import Purpose, frames_of, purpose_of
from sawtooth.ingest.dumps.memory_snapshot import AllocationEvent, Segment

if TYPE_CHECKING:
    from sawtooth.analysis.dumps.held_memory import Allocation

SMALL_BYTES = 1 << 20  # kSmallSize of PyTorch's allocator; larger requests use separate segments.
GRANULE_BYTES = 2 << 20  # The allocator requests multiples of this size from the driver (kRoundLarge in PyTorch).


@dataclass(frozen=True)
class Fragmentation:
    """The allocator's memory at the end of the recording.

    ``free_bytes`` is the cached memory that is not in use. ``stuck_bytes`` is its part in segments that are partly in use, which
    ``empty_cache`` cannot return to the driver. ``largest_free_bytes`` is the largest free block, which limits one allocation.
    """

    reserved_bytes: int
    used_bytes: int
    free_bytes: int
    stuck_bytes: int
    largest_free_bytes: int


@dataclass(frozen=True)
class FailedAllocation:
    """An allocation that failed: its ``size`` and the memory at that time, in bytes.

    ``cached_free_bytes`` and ``largest_free_bytes`` are the free cache of its stream, ``other_streams_bytes`` the free cache of
    other streams. ``fitted_bytes`` is the largest allocation that would have succeeded: the larger of ``largest_free_bytes``
    and the driver's free memory.
    """

    size: int
    driver_free_bytes: int
    cached_free_bytes: int
    largest_free_bytes: int
    other_streams_bytes: int
    in_use_bytes: int
    fitted_bytes: int
    purpose: Purpose

    @property
    def joined_bytes(self) -> int:
        """The bytes that would be free in one piece with expandable segments."""
        return self.driver_free_bytes + self.cached_free_bytes

    @property
    def fits_joined(self) -> bool:
        """Whether the allocation would have succeeded with joined pieces."""
        return self.size <= self.joined_bytes


def fragmentation_of(segments: Sequence[Segment]) -> Fragmentation:
    """Return the memory in one device's ``segments``."""
    used = free = stuck = largest = 0
    for segment in segments:
        inside = sum(block.size for block in segment.blocks if block.state != "inactive")
        gaps = [block.size for block in segment.blocks if block.state == "inactive"]
        used, free = used + inside, free + sum(gaps)
        stuck += sum(gaps) if inside else 0
        largest = max([largest, *gaps])
    return Fragmentation(sum(segment.total_size for segment in segments), used, free, stuck, largest)


def failed_at(
    at: int, events: Sequence[AllocationEvent], segments: Sequence[Segment], allocations: Sequence[Allocation]
) -> FailedAllocation:
    """Return the failed allocation of event ``at``, with the cache's state at that event."""
    event = events[at]
    large = event.size > SMALL_BYTES
    gaps, other = [], 0
    live = sorted((a.address, a.size) for a in allocations if a.start < at and (a.end is None or a.end >= at))
    for address, size, stream in _segments_at(at, events, segments):
        if (size > GRANULE_BYTES) != large:  # Small and large requests use separate segments.
            continue
        pieces = _gaps(address, size, live)
        if stream == event.stream:
            gaps += pieces
        else:
            other += sum(pieces)
    driver = event.device_free or 0
    largest = max(gaps, default=0)
    return FailedAllocation(
        event.size, driver, sum(gaps), largest, other, sum(size for _, size in live),
        max(largest, driver // GRANULE_BYTES * GRANULE_BYTES), purpose_of(frames_of(event.frames), lasts=False),
    )  # fmt: skip


def _segments_at(at: int, events: Sequence[AllocationEvent], segments: Sequence[Segment]) -> list[tuple[int, int, int]]:
    """Return address, size and stream of the segments at event ``at``, without later changes."""
    by_address = {segment.address: (segment.total_size, segment.stream) for segment in segments}
    for event in reversed(events[at:]):
        if event.action in ("segment_alloc", "segment_map"):
            by_address.pop(event.addr, None)
        elif event.action in ("segment_free", "segment_unmap"):
            by_address[event.addr] = (event.size, event.stream)
    return [(address, size, stream) for address, (size, stream) in by_address.items()]


def _gaps(address: int, size: int, live: Sequence[tuple[int, int]]) -> list[int]:
    """Return the free pieces of a segment between the blocks in use."""
    pieces, at = [], address
    for start, length in live:
        if address <= start < address + size:
            pieces.append(start - at)
            at = max(at, start + length)
    return [piece for piece in (*pieces, address + size - at) if piece > 0]
