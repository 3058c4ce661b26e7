"""The memory of a run's GPUs from its stored memory snapshots."""

from __future__ import annotations

import msgspec

from sawtooth.analysis.dumps.held_memory import DeviceMemory, held_memory
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.ingest.dumps.memory_snapshot import AllocationEvent, Annotation, Block, Segment, Snapshot
from sawtooth.ingest.manifest import Manifest


def memory_of(manifest: Manifest, library: Library, rank: int | None, device: int | None) -> DeviceMemory | None:
    """Return the memory of a rank's GPU; None if the run has no snapshot of this rank.

    A snapshot does not contain its rank, so the rank comes from the file's name. If a process has several GPUs, the GPU with the
    number ``device`` is used, else the one with the highest peak.
    """
    refs = [ref for ref in manifest.recordings if ref.kind == "memory"]
    refs_of_rank = [ref for ref in refs if ref.rank == rank] or [ref for ref in refs if ref.rank is None or rank is None]
    for ref in refs_of_rank:
        with library.open(ref.id, derived=False) as recording:
            memories = held_memory(_snapshot(recording))
        if memories:
            of_device = [memory for memory in memories if memory.device == device and memory.peak_bytes]
            return of_device[0] if of_device else max(memories, key=lambda memory: memory.peak_bytes)
    return None


def _snapshot(recording: Recording) -> Snapshot:
    """Return the snapshot that was stored by ``sawtooth.ingest.logs.stored_snapshot``."""
    stacks = {
        number: msgspec.json.decode(frames) for number, frames in recording.rows("SELECT stack_id, frames FROM memory_stacks")
    }
    traces: list[list[AllocationEvent]] = []
    for device, action, size, address, stream, time_us, free, stack in recording.rows(
        "SELECT device, action, bytes, address, stream, time_ns // 1000, device_free_bytes, stack_id FROM memory_events ORDER BY device, place"
    ):
        while len(traces) <= device:
            traces.append([])
        traces[device].append(AllocationEvent(action, size, address, stream, time_us, free, stacks.get(stack, ())))
    segments: dict[tuple[int, int], Segment] = {}
    for device, address, size, stream, block_address, block_bytes, state, stack in recording.rows(
        "SELECT device, segment_address, segment_bytes, stream, address, bytes, state, stack_id "
        "FROM memory_blocks ORDER BY rowid"
    ):
        segment = segments.setdefault((device, address), Segment(address, size, [], device, stream))
        if block_address is not None:
            segment.blocks.append(Block(block_bytes, state, address=block_address, frames=stacks.get(stack, ())))
    ranges = [
        Annotation(stage, name, device, time_us)
        for stage, name, device, time_us in recording.rows(
            "SELECT stage, name, device, time_ns // 1000 FROM memory_ranges ORDER BY place"
        )
    ]
    return Snapshot(list(segments.values()), traces, ranges)
