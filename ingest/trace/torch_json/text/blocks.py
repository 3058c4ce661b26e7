"""Cut the text of a trace into blocks at event borders and decode them, with a few blocks in memory.

A block is cut at its last ``}, {``, which is probably between two events. Decoding checks this guess, because a block that starts at an
event decodes as a JSON array only if it ends at the end of an event. If a block does not decode, the tolerant reader reads it event by
event.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.torch_json.text import envelope, format_errors
from sawtooth.ingest.trace.torch_json.text.events import (
    DECODE_ERRORS,
    LEAD_BYTES,
    TRAILING_MESSAGE,
    Event,
    decode_events,
    without_lead,
)
from sawtooth.ingest.trace.torch_json.text.tolerant import BORDER, TolerantReader

BLOCK_BYTES = 1 << 20  # The events of such a block fit into a core's cache. With 4 MB or 256 kB, an event takes 20 % more time.
CUT_BYTES = 8 << 10  # This much of a block's end is searched first for a cut, because most events are shorter.
ARRAY_START = re.compile(rb'"traceEvents"\s*:\s*')
BLANKS = b" \t\r\n"
MAX_STARTS = 64  # At most this many possible beginnings of the array are tried. Each needs a check of all text before it.
EXAMPLE_BYTES = 200  # Column ``example`` of table ``diagnostics`` documents this length.


class Document:
    """The text of a trace. After reading, ``metadata`` has the values before and after the events."""

    def __init__(
        self,
        pieces: Iterator[bytes],
        limits: Limits,
        block_bytes: int = BLOCK_BYTES,
        decode: Callable[[bytes], list[Any]] = decode_events,
    ) -> None:
        """Use ``decode`` for the events of a JSON array; events of a damaged block are always ``Event``."""
        self._block_bytes = block_bytes
        self._decode = decode
        self._pieces = pieces
        self._limits = limits
        self._buffer = b""
        self._offset = 0  # The position of the buffer in the uncompressed source.
        self.metadata: dict[str, Any] = {}
        self.truncated = False
        self.bare_list = False
        self._closed = False  # Whether the array's closing bracket was read.
        self._ended = False
        # Occurrences of the array's name that do not begin the array, and the position up to which they were searched.
        self._starts, self._searched = 0, 0
        self._next_length = block_bytes  # Length of the next block.
        self.notes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def note(self, key: str, example: bytes | str, count: int = 1) -> None:
        """Count one kind of problem and store its first example."""
        self.notes[key] += count
        text = example if isinstance(example, str) else example[:EXAMPLE_BYTES].decode(errors="replace")
        self.examples.setdefault(key, text)

    @property
    def read_so_far(self) -> int:
        """Bytes of the uncompressed source up to the end of the buffer."""
        return self._offset + len(self._buffer)

    def events(self) -> Iterator[list[Event]]:
        """Yield events in file order, some thousands at a time.

        Raises SourceError if there is no list of events, or an event is longer than the limit.
        """
        self.begin()
        while (events := self.next_events()) is not None:
            yield events

    def begin(self) -> None:
        """Read the text before the events.

        Raises SourceError if there is no list of events.
        """
        while True:
            more = self._fill(len(self._buffer) + self._block_bytes)
            if self._offset == 0 and self._buffer.startswith(b"\xef\xbb\xbf"):
                self._advance(3)
            text = self._buffer.lstrip(BLANKS)
            if text.startswith(b"["):
                self.bare_list = True
                self._advance(len(self._buffer) - len(text) + 1)
                return
            if text and not text.startswith(b"{"):
                raise format_errors.not_a_trace_error(text, self.read_so_far)
            if self._enter_array(last=not more):
                return
            if len(self._buffer) <= self._limits.metadata_bytes:
                if not more:
                    raise format_errors.not_a_trace_error(text, self.read_so_far)
            else:
                raise format_errors.late_events_error(self._limits)

    def next_events(self) -> list[Event] | None:
        """Return the next events; None after the last. Raises SourceError for an event longer than the limit."""
        while not self._ended:
            if self._closed:
                self._end()
                break
            more = self._fill(self._next_length)
            self._skip_comma()
            if self._buffer.startswith(b"]"):
                self._advance(1)
                self._closed = True
                continue
            size = len(self._buffer)
            if not size and not more:
                self._end()
                break
            cut = self._cut() if more else size
            if cut is None:
                if size > self._block_bytes + self._limits.event_bytes:
                    # It may be the last event, with much text after the array.
                    if (events := self._decoded(self._buffer)) is not None:
                        return events
                    raise format_errors.long_event_error(self._offset, self._limits)
                self._next_length = size + self._block_bytes
                continue
            events = self._decoded(self._buffer[:cut])
            if events is None:
                events = self._read_tolerantly(more)
            # If nothing was read, the next block also needs the bytes that are in the buffer.
            self._next_length = self._block_bytes + (len(self._buffer) if len(self._buffer) == size else 0)
            return events
        return None

    @property
    def closed(self) -> bool:
        """Whether the closing bracket of the events was read."""
        return self._closed

    def _end(self) -> None:
        self._ended = True
        if self._closed:
            self._read_tail()
        else:
            self.truncated = True

    # -- blocks that workers decode
    def block(self) -> memoryview | None:
        """Remove and return a block that probably has whole events; None if only ``next_events`` can continue.

        The block is neither checked nor copied.
        """
        if self._ended or self._closed or not self._fill(1):
            return None
        head = self._buffer[:LEAD_BYTES]
        lead = len(head) - len(without_lead(head))
        if not self._fill(lead + self._block_bytes):
            return None
        cut = self._cut(lead)  # The cut is the same as in ``next_events``, which drops the comma first.
        if cut is None:
            return None
        block = memoryview(self._buffer)[:cut]
        self._advance(cut)
        return block

    def put_back(self, blocks: list[memoryview]) -> None:
        """Put back the last ``blocks`` in their order, because the first block does not decode."""
        self._buffer = b"".join([*blocks, self._buffer])
        self._offset -= sum(map(len, blocks))

    def _decoded(self, block: bytes) -> list[Event] | None:
        """Decode the events of ``block``, up to the array's end if present; None if they do not decode."""
        try:
            events = self._decode(b"[%b]" % block)
        except DECODE_ERRORS as error:
            return self._last_events(block, str(error))
        self._advance(len(block))
        return events

    # -- the text before the events
    def _enter_array(self, last: bool) -> bool:
        for match in itertools.islice(ARRAY_START.finditer(self._buffer, self._searched), MAX_STARTS - self._starts):
            head = self._buffer[: match.start()] + b'"traceEvents":0}'
            for text in envelope.candidates(head):
                try:
                    document = msgspec.json.decode(text)
                except DECODE_ERRORS:
                    continue
                if self._buffer[match.end() : match.end() + 1] != b"[":
                    if match.end() == len(self._buffer):
                        if last:
                            raise format_errors.truncated_error(self.read_so_far)
                        return False
                    raise format_errors.events_not_a_list_error()
                if text is not head:
                    self.note("metadata_repaired", "")
                document.pop("traceEvents")
                self.metadata = document
                self._advance(match.end() + 1)
                return True
            self._starts, self._searched = self._starts + 1, match.end()
        return False

    # -- blocks
    def _fill(self, size: int) -> bool:
        """Read until the buffer has ``size`` bytes; return False if the source ended before."""
        parts, length = [self._buffer], len(self._buffer)
        while length < size:
            piece = next(self._pieces, b"")
            if not piece:
                self._buffer = b"".join(parts)
                return False
            parts.append(piece)
            length += len(piece)
        self._buffer = b"".join(parts)
        return True

    def _advance(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _cut(self, lead: int = 0) -> int | None:
        """Return the position in the buffer at which the block's last whole event probably ends."""
        size, window = min(len(self._buffer), lead + self._next_length), CUT_BYTES
        while True:
            cuts = [match.start() for match in BORDER.finditer(self._buffer, max(0, size - window), size)]
            if cuts:
                return cuts[-1] + 1
            if window >= size:
                return None
            window *= 8

    def _skip_comma(self) -> None:
        if self._buffer[:1] == b"{":
            return
        text = self._buffer.lstrip(BLANKS)
        if text.startswith(b","):
            text = text[1:].lstrip(BLANKS)
        self._advance(len(self._buffer) - len(text))

    def _last_events(self, block: bytes, message: str) -> list[Event] | None:
        """Return the events of ``block`` if it has the array's end, and advance to after the bracket."""
        match = TRAILING_MESSAGE.search(message)
        if match is None:
            return None
        end = block.rfind(b"]", 0, int(match.group(1)))
        try:
            events = self._decode(b"[%b]" % block[:end])
        except DECODE_ERRORS:
            return None
        self._advance(end + 1)
        self._closed = True
        return events

    def _read_tolerantly(self, more: bool) -> list[Event]:
        """Read the block's bytes event by event, because they do not decode as a whole."""
        text = self._buffer[: self._next_length] if more else self._buffer
        result = TolerantReader(text, more, self._limits.event_bytes, self.note).read()
        self._advance(result.used)
        self.truncated |= result.cut_off
        if result.after_array is not None:
            self._closed = True
            self._buffer = result.after_array + self._buffer
        return result.events

    # -- the text after the events
    def _read_tail(self) -> None:
        limit = self._limits.metadata_bytes
        if self._fill(limit):
            self.note("tail_long", self._buffer)
            for _ in self._pieces:  # The hash of the source needs every byte.
                pass
        text = self._buffer.strip(BLANKS)
        self._buffer = b""
        if self.bare_list:
            if text:
                self.note("tail", text)
            return
        text = b'{"":0' + text  # The tail begins with a comma or a brace, so this makes it an object.
        if (tail := envelope.object_at_start(text, self.note)) is None:
            self.truncated = True
            tail = envelope.pairs(text)
        tail.pop("", None)
        if "traceEvents" in tail:
            self.note("second_events", "")
            tail.pop("traceEvents")
        self.metadata.update(tail)
