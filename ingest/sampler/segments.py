"""Append-only segments with checksums, in the format that ``sawtooth.ingest.sampler`` describes."""

from __future__ import annotations

import errno
import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

from sawtooth.ingest.json_checksum import with_checksum

# Segments are deleted one by one after a push, so they are small, but a folder should have few files.
SEGMENT_BYTES = 8_000_000
SEGMENT_NS = 600 * 10**9  # A new segment starts after ten minutes, even if the last one is small.
SYNC_NS = 10**9  # A power failure loses at most the records of this period.
# Each segment's head has these keys of meta.json, so that the segment can be read without other files.
HEAD_KEYS = ("v", "session", "host", "boot", "versions", "name", "interval_ns", "columns", "devices")
SEGMENT = re.compile(r"samples-([0-9]{4,})\.jsonl")
MAX_CONTAINERS = 10_000  # Lists and objects in a record or in meta.json. Sixteen GPUs have a few hundred.
_MARK = b',"crc":"'
_TAIL = len(_MARK) + 8 + 2  # A line ends with ,"crc":"xxxxxxxx"}


def encode_line(record: dict[str, Any]) -> bytes:
    """Encode a record as a line. Raises ValueError for NaN and infinity, which JSON does not allow."""
    body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()[:-1]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Decode a line without its newline; None if the line is incomplete or damaged."""
    if len(line) <= _TAIL or line[-_TAIL:-10] != _MARK or line[-2:] != b'"}':
        return None
    body = line[:-_TAIL]
    if is_oversized(body):
        return None
    try:
        if int(line[-10:-2], 16) != zlib.crc32(body):
            return None
        record = json.loads(body + b"}")
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def is_oversized(text: bytes) -> bool:
    """Return whether a JSON text has more lists and objects than any sampler writes.

    Parsing such a text would block all other threads, because Python creates each object while it holds the GIL.
    """
    return text.count(b"[") + text.count(b"{") > MAX_CONTAINERS


def segment_name(number: int) -> str:
    """Return the file name of segment ``number``; the first is 1."""
    return f"samples-{number:04d}.jsonl"


def find_segments(folder: Path) -> dict[int, Path]:
    """Return a session's segments by number, in numeric order."""
    numbers = ((int(match[1]), path) for path in folder.glob("samples-*.jsonl") if (match := SEGMENT.fullmatch(path.name)))
    return dict(sorted(numbers))


class SegmentWriter:
    """Writes one session. ``durable`` has the bytes of each segment that are synced and may be pushed."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.meta = meta
        self.segment = 0
        self.sequence = 0
        self.durable: dict[int, int] = {}
        self._file = -1
        self._bytes = 0
        self._opened_ns = 0
        self._synced_ns = 0
        folder.mkdir(parents=True, mode=0o700)
        content = with_checksum(json.dumps(meta, indent=1, allow_nan=False).encode()) + b"\n"
        self.meta_bytes = len(content)
        _write_once(folder / "meta.json", content)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record; the caller sets ``k``, ``m`` and ``w``. Raises OSError if writing fails."""
        monotonic_ns = int(record["m"])
        if self._file < 0 or self._bytes >= SEGMENT_BYTES or monotonic_ns - self._opened_ns >= SEGMENT_NS:
            self.start_segment(monotonic_ns, int(record["w"]))
        self._append(record)
        if monotonic_ns - self._synced_ns >= SYNC_NS:
            self.sync(monotonic_ns)

    def start_segment(self, monotonic_ns: int, wall_ns: int) -> None:
        """Close the segment, open the next segment, and write its head. Raises OSError if writing fails."""
        self.close()
        self.segment += 1
        path = self.folder / segment_name(self.segment)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._bytes, self._opened_ns, self._synced_ns = 0, monotonic_ns, monotonic_ns
        head = {key: self.meta[key] for key in HEAD_KEYS if key in self.meta}
        self._append({"k": "head", "m": monotonic_ns, "w": wall_ns, "segment": self.segment, **head})

    def sync(self, monotonic_ns: int) -> None:
        """Sync the written bytes to the disk."""
        os.fsync(self._file)
        self._synced_ns = monotonic_ns
        self.durable[self.segment] = self._bytes

    def close(self) -> None:
        """Sync and close the open segment."""
        if self._file >= 0:
            self.sync(self._synced_ns)
            os.close(self._file)
            self._file = -1

    def _append(self, record: dict[str, Any]) -> None:
        line = encode_line({"k": record["k"], "q": self.sequence, **record})
        written = os.write(self._file, line)
        if written != len(line):
            # A full disk cut the line. A newline makes the next line readable. Readers skip the cut line because of its CRC.
            self._bytes += written
            try:
                self._bytes += os.write(self._file, b"\n")
            except OSError:
                self._abandon_segment()
            raise OSError(errno.ENOSPC, "the disk took only part of a record")
        self.sequence += 1
        self._bytes += written

    def _abandon_segment(self) -> None:
        os.close(self._file)
        self._file = -1  # The next record opens a new segment.


def join_segments(folder: Path, target: Path) -> int:
    """Join the complete lines of a session's segments into one file for ingestion; return its tick count."""
    ticks = 0
    with target.open("wb") as out:
        for segment in find_segments(folder).values():
            content = segment.read_bytes()
            lines = content[: content.rfind(b"\n") + 1]
            ticks += lines.count(b'{"k":"tick",')
            out.write(lines)
    return ticks


def _write_once(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
