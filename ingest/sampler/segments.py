"""Append-only, checksummed segments: the format in ``sawtooth.ingest.sampler``'s docstring."""

from __future__ import annotations

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

from sawtooth.ingest.seals import sealed

SEGMENT_BYTES = 8_000_000  # small enough to delete after an acknowledged push, large enough to keep folders short
SEGMENT_NS = 600 * 10**9  # ten minutes, for the same reason at slow rates
SYNC_NS = 10**9  # a power cut loses at most this much
HEAD_KEYS = (
    "v",
    "session",
    "host",
    "boot",
    "versions",
    "name",
    "interval_ns",
    "columns",
    "devices",
)  # any segment can stand alone
SEGMENT = re.compile(r"samples-([0-9]{4,})\.jsonl")
NESTED_MOST = 10_000  # lists and objects of a record or of meta.json; of sixteen GPUs they have some hundred
_MARK = b',"crc":"'
_TAIL = len(_MARK) + 8 + 2  # ,"crc":"xxxxxxxx"}


def encode_line(record: dict[str, Any]) -> bytes:
    """Return the record's line. Raises ValueError for NaN and infinity, which JSON does not have."""
    body = json.dumps(record, separators=(",", ":"), allow_nan=False).encode()[:-1]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def decode_line(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line without its newline, or None where the line is torn or damaged."""
    if len(line) <= _TAIL or line[-_TAIL:-10] != _MARK or line[-2:] != b'"}':
        return None
    body = line[:-_TAIL]
    if is_tangled(body):
        return None
    try:
        if int(line[-10:-2], 16) != zlib.crc32(body):
            return None
        record = json.loads(body + b"}")
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def is_tangled(text: bytes) -> bool:
    """Tell whether a JSON text holds more lists and objects than any sampler writes: Python makes them one by one while all else waits."""
    return text.count(b"[") + text.count(b"{") > NESTED_MOST


def segment_name(number: int) -> str:
    """Return the file name of segment ``number``, from 1."""
    return f"samples-{number:04d}.jsonl"


def segments_of(folder: Path) -> dict[int, Path]:
    """Return a session's segments by number, in its order: by name 10000 comes before 9999."""
    numbers = ((int(match[1]), path) for path in folder.glob("samples-*.jsonl") if (match := SEGMENT.fullmatch(path.name)))
    return dict(sorted(numbers))


class SegmentWriter:
    """Writes one session. ``durable`` is what a push may ship: (segment, bytes known to be on disk)."""

    def __init__(self, folder: Path, meta: dict[str, Any]) -> None:
        self.folder = folder
        self.meta = meta
        self.segment = 0
        self.sequence = 0
        self.durable: dict[int, int] = {}
        self._file = -1
        self._bytes = 0
        self._opened_m = 0
        self._synced_m = 0
        folder.mkdir(parents=True, mode=0o700)
        content = sealed(json.dumps(meta, indent=1, allow_nan=False).encode()) + b"\n"
        self.meta_bytes = len(content)
        _write_once(folder / "meta.json", content)

    def write(self, record: dict[str, Any]) -> None:
        """Append one record (``k``, ``m`` and ``w`` set by the caller). Raises OSError when the disk refuses."""
        m = int(record["m"])
        if self._file < 0 or self._bytes >= SEGMENT_BYTES or m - self._opened_m >= SEGMENT_NS:
            self.start_segment(m, int(record["w"]))
        self._append(record)
        if m - self._synced_m >= SYNC_NS:
            self.sync(m)

    def start_segment(self, m: int, w: int) -> None:
        """Close the segment and open the next one, whose head says of the devices what ``meta`` does. Raises OSError when the disk refuses."""
        self.close()
        self.segment += 1
        path = self.folder / segment_name(self.segment)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._bytes, self._opened_m, self._synced_m = 0, m, m
        head = {key: self.meta[key] for key in HEAD_KEYS if key in self.meta}
        self._append({"k": "head", "m": m, "w": w, "segment": self.segment, **head})

    def sync(self, m: int) -> None:
        """Bring what is written onto the disk."""
        os.fsync(self._file)
        self._synced_m = m
        self.durable[self.segment] = self._bytes

    def close(self) -> None:
        """Sync and close the open segment."""
        if self._file >= 0:
            self.sync(self._synced_m)
            os.close(self._file)
            self._file = -1

    def _append(self, record: dict[str, Any]) -> None:
        line = encode_line({"k": record["k"], "q": self.sequence, **record})
        written = os.write(self._file, line)
        if written != len(line):
            # A full disk cut the line. End it, so that the next one is read; a reader skips this one for its CRC.
            self._bytes += written
            try:
                self._bytes += os.write(self._file, b"\n")
            except OSError:
                self._file_broken()
            raise OSError(28, "the disk took only part of a record")
        self.sequence += 1
        self._bytes += written

    def _file_broken(self) -> None:
        os.close(self._file)
        self._file = -1  # the next record opens a new segment


def join_segments(folder: Path, target: Path) -> int:
    """Write the whole lines of a session's segments, one after the other, as one file that can be ingested; return its ticks."""
    ticks = 0
    with target.open("wb") as out:
        for segment in segments_of(folder).values():
            content = segment.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            ticks += whole.count(b'{"k":"tick",')
            out.write(whole)
    return ticks


def _write_once(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.part")
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
