"""Read a block that does not decode event by event; repair or skip damaged events, and count them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from sawtooth.ingest.trace.torch_json.text.events import (
    DecodedEvent,
    Event,
    count_brackets,
    decode_one,
    end_of_first_object,
    is_incomplete,
    without_lead,
)
from sawtooth.ingest.trace.torch_json.text.format_errors import DEEP_BRACKETS
from sawtooth.ingest.trace.torch_json.text.repair import repair

BORDER = re.compile(rb"\}\s*,\s*(?=\{)")  # Matches the border between two events, or between two objects inside an event.
MAX_JOINS = 64  # An event has at most this many borders inside. Kineto writes no objects inside events, but other tools may.


class TolerantResult(NamedTuple):
    """The events, the number of bytes used, and the text after the array's end if the end was found."""

    events: list[Event]
    used: int
    after_array: bytes | None = None
    cut_off: bool = False  # True if the last event lacks its end.


class _JoinedEvent(NamedTuple):
    """An event that may span several borders."""

    border: int  # The event ends at the border with this index.
    decoded: DecodedEvent
    lacks_end: bool = False  # True if the text does not decode because it is only the beginning of an event.


class TolerantReader:
    """Reader of a text event by event; ``note`` counts each problem, with an example.

    ``more`` means that further text follows in the file. Reading then stops before an event that needs the further text.
    """

    def __init__(self, text: bytes, more: bool, event_bytes: int, note: Callable[[str, bytes], None]) -> None:
        self._text, self._more, self._event_bytes, self._note = text, more, event_bytes, note
        borders = [match.start() + 1 for match in BORDER.finditer(text)]
        self._ends = borders if more else [*borders, len(text)]

    def read(self) -> TolerantResult:
        """Read up to the array's end, to where more text is needed, or to the end."""
        events: list[Event] = []
        start, i, cut_off = 0, 0, False
        while i < len(self._ends):
            last, decoded, lacks_end = self._joined(start, i)
            if decoded is not None:
                event, after_array = decoded
                if event is not None:
                    events.append(event)
                if after_array is not None:
                    return TolerantResult(events, self._ends[last], after_array)
            elif lacks_end and last + 1 == len(self._ends) and self._may_go_on(start):
                if self._more:
                    break
                last, cut_off = len(self._ends) - 1, True
                self._note_unreadable(without_lead(self._text[start:]), "event_cut")
            else:
                piece = without_lead(self._text[start : self._ends[i]])
                event, used = self._skip(piece)
                if event is not None:
                    events.append(event)
                if used < len(piece):
                    start = self._ends[i] - len(piece) + used
                    continue
            start, i = self._ends[last], last + 1
        return TolerantResult(events, start, cut_off=cut_off)

    def _may_go_on(self, start: int) -> bool:
        return not self._more or len(self._text) - start < self._event_bytes

    def _joined(self, start: int, first: int) -> _JoinedEvent:
        """Decode the event from ``start``, repaired if needed, across the borders inside it."""
        for last in range(first, min(len(self._ends), first + MAX_JOINS)):
            piece = without_lead(self._text[start : self._ends[last]])
            if piece.startswith(b"]"):
                return _JoinedEvent(last, (None, piece[1:]))
            if (decoded := decode_one(piece)) is not None:
                return _JoinedEvent(last, decoded)
            repaired, kinds = repair(piece)
            if (decoded := decode_one(repaired)) is not None:
                for kind in kinds:
                    self._note(f"mended_{kind}", piece)
                return _JoinedEvent(last, decoded)
            if not is_incomplete(repaired):
                return _JoinedEvent(first, None)
        return _JoinedEvent(last, None, lacks_end=True)

    def _skip(self, piece: bytes) -> tuple[Event | None, int]:
        """Return the event at the start of ``piece`` and its length; None and a length for unreadable text."""
        if used := end_of_first_object(piece):
            decoded = decode_one(piece[:used])
            return (decoded[0] if decoded else None), used
        next_object = 0 if piece.startswith(b"{") else piece.find(b"{")
        used = next_object if next_object > 0 else len(piece)
        self._note_unreadable(piece, "event_unreadable", used)
        return None, used

    def _note_unreadable(self, piece: bytes, key: str, used: int | None = None) -> None:
        if piece:
            self._note("event_deep" if count_brackets(piece) > DEEP_BRACKETS else key, piece[:used])
