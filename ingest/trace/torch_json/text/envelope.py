"""Decode the JSON text before and after the events; short text is repaired if necessary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS, TRAILING_MESSAGE
from sawtooth.ingest.trace.torch_json.text.repair import repair

KEY_AND_VALUE = re.compile(rb'"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|-?[\d.]+)\s*[,}]')
# Longer text is not repaired, because repair needs a hundred times its memory. Tools with so much metadata write valid JSON.
MAX_REPAIRED_BYTES = 4 << 20


def candidates(text: bytes) -> Iterator[bytes]:
    """Yield ``text`` and then its repaired form, for callers that cannot decode ``text``."""
    yield text
    if len(text) <= MAX_REPAIRED_BYTES:
        yield repair(text)[0]


def object_at_start(text: bytes, note: Callable[[str, bytes], None]) -> dict[str, Any] | None:
    """Return the object at the beginning of ``text`` and note the text after it; None if unreadable."""
    for candidate in candidates(text):
        try:
            return msgspec.json.decode(candidate, type=dict[str, Any])
        except DECODE_ERRORS as error:
            if match := TRAILING_MESSAGE.search(str(error)):
                end = candidate.rfind(b"}", 0, int(match.group(1))) + 1
                try:
                    values = msgspec.json.decode(candidate[:end], type=dict[str, Any])
                except DECODE_ERRORS:
                    continue
                note("tail", candidate[end:])
                return values
    return None


def pairs(text: bytes) -> dict[str, Any]:
    """Return the texts and numbers of a damaged object by key, as far as each pair decodes alone."""
    values: dict[str, Any] = {}
    for pair in KEY_AND_VALUE.finditer(text):
        try:
            values[pair.group(1).decode()] = msgspec.json.decode(pair.group(2))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return values
