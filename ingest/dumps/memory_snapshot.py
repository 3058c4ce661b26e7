"""Read memory snapshots, which ``torch.cuda.memory._dump_snapshot`` writes as pickles of plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from sawtooth.ingest.dumps.opened import read_dump
from sawtooth.ingest.dumps.plain_pickle import decode, is_pickle
from sawtooth.ingest.errors import SourceError

EXPECTED = "A snapshot has segments and device_traces. Give the file that torch.cuda.memory._dump_snapshot() writes."
MIN_EVENT_BYTES = 4  # An event has at least this size. A hostile file may refer to one list many times, so events are limited.


class Block(msgspec.Struct, frozen=True):
    """A part of a segment.

    ``state`` is active_allocated, active_pending_free (awaiting_free) or inactive.
    """

    size: int
    state: str
    address: int | None = None
    frames: Any = ()


class Segment(msgspec.Struct, frozen=True):
    """Memory that the allocator took from the driver at once."""

    address: int
    total_size: int
    blocks: list[Block] = []
    device: int = 0
    stream: int = 0

    @property
    def placed(self) -> list[tuple[int, Block]]:
        """The blocks with their addresses, which are computed for older PyTorch versions."""
        address, placed = self.address, []
        for block in self.blocks:
            placed.append((address if block.address is None else block.address, block))
            address += block.size
        return placed


class AllocationEvent(msgspec.Struct, frozen=True):
    """An action of the allocator, such as alloc, free_requested, segment_alloc or oom.

    ``frames`` begin with the innermost frame.
    """

    action: str
    size: int = 0
    addr: int = 0
    stream: int = 0
    time_us: int | None = None
    device_free: int | None = None
    frames: Any = ()


class Annotation(msgspec.Struct, frozen=True):
    """The begin or the end of a named range, such as "FSDP::pre_forward (layers.0)"."""

    stage: str
    name: str
    device: int = 0
    time_us: int = 0


class Snapshot(msgspec.Struct, frozen=True):
    """The allocator's segments now, and the last events of each device, oldest first."""

    segments: list[Segment]
    device_traces: list[list[AllocationEvent]] = []
    external_annotations: list[Annotation] = []


def is_snapshot(head: bytes) -> bool:
    """Return whether ``head`` (the first uncompressed bytes) begins a pickled snapshot."""
    return is_pickle(head) and b"segments" in head[:64]


def read_snapshot(path: Path) -> Snapshot:
    """Return the snapshot in ``path``. Raises SourceError, with the file's name, for other files."""
    data = read_dump(path)
    try:
        return decode_snapshot(data)
    except SourceError as error:
        error.file = path.name
        raise


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot that a pickle contains. Raises SourceError for other data."""
    if not is_pickle(data):
        raise SourceError("E-TYPE", f"This is not a pickle. {EXPECTED}")
    try:
        plain = decode(data)
        traces = plain.get("device_traces", []) if isinstance(plain, dict) else []
        if isinstance(traces, list) and sum(len(t) for t in traces if isinstance(t, list)) > len(data) // MIN_EVENT_BYTES:
            raise SourceError(
                "E-SIZE", "This snapshot has more events than fit into its size, so it is damaged. Record it again."
            )
        return msgspec.convert({"segments": plain} if isinstance(plain, list) else plain, Snapshot, strict=False)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise SourceError("E-TYPE", f"This is not a snapshot of PyTorch's allocator ({error}). {EXPECTED}") from error
