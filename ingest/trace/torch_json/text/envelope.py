"""The object around the events: the text before and after them, repaired if that takes little memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS, TRAILING
from sawtooth.ingest.trace.torch_json.text.repair import repair

PAIR = re.compile(rb'"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|-?[\d.]+)\s*[,}]')
# Bytes besides the events. Repair takes a hundred times the memory, and tools with so much metadata write valid JSON.
MENDED_BYTES = 4 << 20


def readings(text: bytes) -> Iterator[bytes]:
    """Yield a text, and its repaired form in case the text itself is not valid."""
    yield text
    if len(text) <= MENDED_BYTES:
        yield repair(text)[0]


def whole(text: bytes, note: Callable[[str, bytes], None]) -> dict[str, Any] | None:
    """Return the object at the beginning of ``text`` and note the text after it; None if unreadable."""
    for reading in readings(text):
        try:
            return msgspec.json.decode(reading, type=dict[str, Any])
        except DECODE_ERRORS as error:
            if match := TRAILING.search(str(error)):
                end = reading.rfind(b"}", 0, int(match.group(1))) + 1
                try:
                    values = msgspec.json.decode(reading[:end], type=dict[str, Any])
                except DECODE_ERRORS:
                    continue
                note("tail", reading[end:])
                return values
    return None


def pairs(text: bytes) -> dict[str, Any]:
    """Return the plain key-value pairs of a damaged object, each by itself."""
    values: dict[str, Any] = {}
    for pair in PAIR.finditer(text):
        try:
            values[pair.group(1).decode()] = msgspec.json.decode(pair.group(2))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return values
