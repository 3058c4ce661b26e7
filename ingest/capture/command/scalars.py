"""Writer of TensorBoard's scalar files that does not need TensorBoard.

TensorBoard defines the format: https://github.com/tensorflow/tensorboard/blob/master/tensorboard/compat/proto/event.proto

A file has records, and each record has an Event as a protocol buffer. A record consists of the event's length in 8 bytes, the masked
CRC-32C of these bytes, the event, and the masked CRC-32C of the event. An Event has the fields wall_time (1, double), step (2, int64),
and either file_version (3, string) or summary (5). The values (1) of a summary have a tag (1, string) and a simple_value (2, float).
"""

from __future__ import annotations

import os
import platform
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path

CASTAGNOLI = 0x82F63B78  # The polynomial of CRC-32C, reversed.
MASK = 0xA282EAD8  # TensorFlow's kMaskDelta, tensorflow/core/lib/hash/crc32c.h.


class ScalarWriter:
    """Writes scalars into a new event file in ``folder``, which is created if needed.

    Raises OSError if the file cannot be written.
    """

    def __init__(self, folder: Path, *, wall_s: Callable[[], float] = time.time) -> None:
        self._wall_s = wall_s
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"events.out.tfevents.{int(wall_s())}.{platform.node()}.{os.getpid()}.sawtooth"
        self._file = self.path.open("ab")
        self._record(_bytes(3, b"brain.Event:2"))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write ``values`` (by tag) for a step of the training."""
        summary = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + b"\x15" + struct.pack("<f", value)) for tag, value in values.items()
        )
        self._record(b"\x10" + _varint(step) + _bytes(5, summary))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _record(self, content: bytes) -> None:
        event = b"\x09" + struct.pack("<d", self._wall_s()) + content
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()


def _bytes(field: int, value: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _checksum(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + MASK) & 0xFFFFFFFF)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of ``data``, bit by bit, because an event has only some hundred bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (CASTAGNOLI if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
