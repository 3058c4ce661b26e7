"""Number repeated values (names, threads, inputs of operators) from 0, in order of appearance."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from sawtooth.ingest.trace.source import UNNAMED
from sawtooth.ingest.trace.torch_json.arguments import Number
from sawtooth.ingest.trace.torch_json.text.events import DECODE_ERRORS
from sawtooth.ingest.trace.torch_json.text.repair import repair


class InternedIds(dict[Any, int]):
    """Ids from 0, in order of first appearance; ``new_keys`` are the keys since the last ``drain``."""

    def __init__(self) -> None:
        self.new_keys: list[Any] = []

    def __missing__(self, key: Any) -> int:
        self[key] = value = len(self)
        self.new_keys.append(key)
        return value

    def drain(self) -> list[Any]:
        """Return the new keys since the last call, in the order of their ids."""
        new_keys, self.new_keys = self.new_keys, []
        return new_keys


class NameIds(InternedIds):
    """Ids of names.

    Empty and too long names are not stored as keys, so that every occurrence is counted.
    """

    def __init__(self, max_length: int, notes: Counter[str]) -> None:
        super().__init__()
        self._max_length, self._notes = max_length, notes

    def __missing__(self, key: str) -> int:
        if not key:
            self._notes["name_missing"] += 1
            return self[UNNAMED]
        if len(key) > self._max_length:
            self._notes["name_cut"] += 1
            return self[key[: self._max_length]]
        return super().__missing__(key)


class ThreadIds(dict[Any, int]):
    """Ids of (pid, tid), which are numbers in some events and texts in others."""

    def __init__(self) -> None:
        self.texts = InternedIds()

    def __missing__(self, key: tuple[Number, Number]) -> int:
        self[key] = value = self.texts[plain_id(key[0]), plain_id(key[1])]
        return value


class CanonicalIds(dict[Any, int]):
    """Ids of tuples of JSON texts; texts with equal values share an id.

    After ``limit`` ids, a new value gets -1. A text whose JSON value has another type than ``value_type`` is treated as missing.
    """

    def __init__(self, value_type: type, limit: int, notes: Counter[str]) -> None:
        self.meanings = InternedIds()
        self._value_type = value_type
        self._limit, self._notes = limit, notes

    def __missing__(self, key: Any) -> int:
        meaning = tuple(_compact(part, self._value_type) for part in key)
        if not any(meaning):
            return -1
        if len(self.meanings) >= self._limit and meaning not in self.meanings:
            self._notes["signatures_left_out"] += 1
            return -1
        value = self.meanings[meaning]
        if len(self) < 2 * self._limit:  # The limit bounds the memory for texts that differ only in form.
            self[key] = value
        return value


def plain_id(value: Number) -> str:
    """Return a pid or tid as text. The numbers 7 and 7.0 and the text "7" give one text."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def _compact(text: bytes, value_type: type) -> str | None:
    if not text or text == b"null":
        return None
    for repaired in (False, True):
        try:
            return msgspec.json.encode(msgspec.json.decode(repair(text)[0] if repaired else text, type=value_type)).decode()
        except DECODE_ERRORS:
            continue
    return None
