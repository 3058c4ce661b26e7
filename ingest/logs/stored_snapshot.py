"""Store a memory snapshot of PyTorch's allocator in the tables ``memory_…`` of a recording."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from sawtooth.ingest.decode import NULL
from sawtooth.ingest.dumps.memory_snapshot import EXPECTED, Block, Segment, Snapshot, decode_snapshot
from sawtooth.ingest.dumps.opened import MAX_BYTES
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.source import Source
from sawtooth.ingest.writer import Writer

MAX_TEXT = 400  # Stored characters of a name. Mangled C++ names have thousands.
MAX_FRAMES = 200  # Stored frames of a stack. The innermost frames are stored, because they show the purpose of an allocation.


class _Stacks:
    """Distinct stacks, each with a number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._number_by_id: dict[int, int] = {}  # A pickle stores each stack once, so equal stacks have one id().

    def number(self, frames: Any) -> int:
        """Return the number of a stack; -1 for a stack without frames."""
        if not isinstance(frames, Sequence) or isinstance(frames, str | bytes) or not frames:
            return -1
        if id(frames) not in self._number_by_id:
            valid_frames = list(filter(None, map(_frame, frames[:MAX_FRAMES])))
            text = msgspec.json.encode(valid_frames).decode()
            self._number_by_id[id(frames)] = self.numbers.setdefault(text, len(self.numbers))
        return self._number_by_id[id(frames)]


def store(source: Source, writer: Writer, about: dict[str, Any]) -> dict[str, Any]:
    """Read ``source``, write its events and blocks, and return the recording row.

    Raises SourceError if ``source`` is not a snapshot, or if the snapshot is empty.
    """
    snapshot = decode_snapshot(_read_all(source))
    if not snapshot.segments and not any(snapshot.device_traces):
        raise SourceError(
            "E-NOEV",
            "This memory snapshot is empty, because the process used no memory of a CUDA GPU. Record it in the process that trains.",
        )
    stacks = _Stacks()
    try:
        times = _write_events(snapshot, writer, stacks)
        _write_blocks(snapshot.segments, writer, stacks)
        _write_ranges(snapshot, writer)
    except OverflowError as error:
        raise SourceError("E-TYPE", f"This snapshot has numbers of more than 64 bits. {EXPECTED}") from error
    writer.insert("memory_stacks", {"stack_id": np.arange(len(stacks.numbers), dtype=np.int32), "frames": list(stacks.numbers)})
    valid_times = times[times != NULL]
    return {
        **about,
        "kind": "memory",
        "event_count": len(times),
        "clock": "unix" if len(valid_times) else "unknown",
        "first_ns": int(valid_times.min()) if len(valid_times) else None,
        "last_ns": int(valid_times.max()) if len(valid_times) else None,
        "truncated": bool(source.damage),
    }


def _read_all(source: Source) -> bytes:
    data = bytearray()
    for piece in source.pieces():
        data += piece
        if len(data) > MAX_BYTES:
            raise SourceError(
                "E-SIZE", f"This snapshot is larger than {MAX_BYTES >> 30} GiB. Record fewer events (max_entries)."
            )
    return bytes(data)


def _write_events(snapshot: Snapshot, writer: Writer, stacks: _Stacks) -> np.ndarray[Any, np.dtype[np.int64]]:
    events = [
        (device, place, event) for device, trace in enumerate(snapshot.device_traces) for place, event in enumerate(trace)
    ]
    times = _numbers([event.time_us for *_, event in events], 1000)
    writer.insert(
        "memory_events",
        {
            "device": np.array([device for device, *_ in events], np.int32),
            "place": _numbers([place for _, place, _ in events]),
            "action": [_text(event.action) for *_, event in events],
            "time_ns": times,
            "address": _numbers([event.addr for *_, event in events]),
            "bytes": _numbers([event.size for *_, event in events]),
            "stream": _numbers([event.stream for *_, event in events]),
            "device_free_bytes": _numbers([event.device_free for *_, event in events]),
            "stack_id": np.array([stacks.number(event.frames) for *_, event in events], np.int32),
        },
    )
    return times


def _write_blocks(segments: Sequence[Segment], writer: Writer, stacks: _Stacks) -> None:
    without_blocks: list[tuple[int, Block] | None] = [None]  # A segment without blocks also gets a row.
    rows = [(segment, placed) for segment in segments for placed in segment.placed or without_blocks]
    writer.insert(
        "memory_blocks",
        {
            "device": np.array([segment.device for segment, _ in rows], np.int32),
            "segment_address": _numbers([segment.address for segment, _ in rows]),
            "segment_bytes": _numbers([segment.total_size for segment, _ in rows]),
            "stream": _numbers([segment.stream for segment, _ in rows]),
            "address": _numbers([placed[0] if placed else None for _, placed in rows]),
            "bytes": _numbers([placed[1].size if placed else None for _, placed in rows]),
            "state": [_text(placed[1].state) if placed else None for _, placed in rows],
            "stack_id": np.array([stacks.number(placed[1].frames) if placed else -1 for _, placed in rows], np.int32),
        },
    )


def _write_ranges(snapshot: Snapshot, writer: Writer) -> None:
    ranges = snapshot.external_annotations
    writer.insert(
        "memory_ranges",
        {
            "place": _numbers(range(len(ranges))),
            "device": np.array([annotation.device for annotation in ranges], np.int32),
            "time_ns": _numbers([annotation.time_us for annotation in ranges], 1000),
            "stage": [_text(annotation.stage) for annotation in ranges],
            "name": [_text(annotation.name) for annotation in ranges],
        },
    )


def _numbers(values: Sequence[int | None], unit: int = 1) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array([NULL if value is None else value * unit for value in values], np.int64)


def _frame(raw: Any) -> dict[str, Any] | None:
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not isinstance(raw.get("filename"), str):
        return None
    line = raw.get("line")
    return {"name": _text(raw["name"]), "filename": _text(raw["filename"]), "line": line if isinstance(line, int) else 0}


def _text(value: str) -> str:
    """Return a text of limited length without lone surrogates, which UTF-8 cannot encode."""
    return value[:MAX_TEXT].encode(errors="replace").decode()
