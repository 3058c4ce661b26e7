"""Cut the text of a trace into blocks at event borders and give out decoded events; memory stays at a few blocks.

A cut is guessed (the last ``}, {`` of a block) and proved: a block that starts at a real event only decodes as a JSON
array when it also ends at one. What does not decode goes through the tolerant lane, event by event.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw

from ingest.arguments import NO_ARGS, NOTHING
from ingest.errors import SourceError
from ingest.repair import FIELD, repair
from ingest.source import Limits

BLOCK_BYTES = 4 << 20  # measured: larger blocks cost memory and gain no time
CUT = re.compile(rb"\}\s*,\s*(?=\{)")
BORDER = re.compile(rb"\}\s*,\s*(?=\{\s*\"" + FIELD + rb"\"\s*:)")
START = re.compile(rb'"traceEvents"\s*:\s*')
TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
PAIR = re.compile(rb'"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|-?[\d.]+)\s*[,}]')
BLANK = b" \t\r\n"
MAX_JOINS = 8  # pieces of one event that the border pattern may have cut apart by mistake
EXAMPLE_BYTES = 200  # as diagnostics.example says


class Event(msgspec.Struct, gc=False):
    """One trace event. Numbers stay text until they are read exactly."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Raw = NOTHING
    tid: Raw = NOTHING
    ts: Raw = NOTHING
    dur: Raw = NOTHING
    args: Raw = NO_ARGS


EVENTS = msgspec.json.Decoder(list[Event])
EVENT = msgspec.json.Decoder(Event)


class Document:
    """The structure around the events: give it the bytes, iterate ``events()``, then read what else it found."""

    def __init__(self, pieces: Iterator[bytes], limits: Limits) -> None:
        self._pieces = pieces
        self._limits = limits
        self._buffer = b""
        self._offset = 0  # of the buffer in the uncompressed source
        self.metadata: dict[str, Any] = {}
        self.truncated = False
        self.bare_list = False
        self._closed = False
        self.notes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def note(self, key: str, example: bytes | str, count: int = 1) -> None:
        """Count one trouble and keep its first example."""
        self.notes[key] += count
        text = example if isinstance(example, str) else example[:EXAMPLE_BYTES].decode(errors="replace")
        self.examples.setdefault(key, text)

    def events(self) -> Iterator[list[Event]]:
        """Yield events in file order, some thousands at a time. Raises SourceError where there are none to be read."""
        self._find_array()
        wanted = BLOCK_BYTES
        while True:
            more = self._fill(wanted)
            self._skip_comma()
            if self._buffer.startswith(b"]"):
                self._advance(1)
                return self._read_tail()
            cut = self._cut() if more else len(self._buffer)
            if not cut:
                if not more:
                    self.truncated = True
                    return None
                wanted = len(self._buffer) + BLOCK_BYTES
                if len(self._buffer) > BLOCK_BYTES + self._limits.event_bytes:
                    raise SourceError(
                        "E-TOKEN", f"One event is longer than {self._limits.event_bytes >> 20} MB.", offset=self._offset
                    )
                continue
            wanted = BLOCK_BYTES
            try:
                events = EVENTS.decode(b"[%b]" % self._buffer[:cut])
                self._advance(cut)
                yield events
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                closed = self._closing(self._buffer[:cut], str(error))
                if closed is not None:
                    yield closed
                    return self._read_tail()
                yield self._tolerant(more)
                if self._closed:
                    return self._read_tail()

    # -- what stands before the events
    def _find_array(self) -> None:
        while True:
            more = self._fill(len(self._buffer) + BLOCK_BYTES)
            if self._offset == 0 and self._buffer.startswith(b"\xef\xbb\xbf"):
                self._advance(3)
            text = self._buffer.lstrip(BLANK)
            if text.startswith(b"["):
                self.bare_list = True
                self._advance(len(self._buffer) - len(text) + 1)
                return
            if text and not text.startswith(b"{"):
                raise self._no_trace(text)
            if self._enter_array(last=not more):
                return
            if not more:
                raise self._no_trace(text)
            if len(self._buffer) > self._limits.metadata_bytes:
                raise SourceError(
                    "E-LIMIT",
                    f"No traceEvents within the first {self._limits.metadata_bytes >> 20} MB. Sawtooth reads Chrome traces of torch.profiler.",
                )

    def _enter_array(self, last: bool) -> bool:
        for match in START.finditer(self._buffer):
            head = self._buffer[: match.start()] + b'"traceEvents":0}'
            for text in (head, repair(head)[0]):
                try:
                    found = msgspec.json.decode(text)
                except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    continue
                if self._buffer[match.end() : match.end() + 1] != b"[":
                    if match.end() >= len(self._buffer) - 1 and not last:
                        return False
                    raise SourceError("E-NOEV", "traceEvents is not a list, so there are no events. Record the trace again.")
                if text is not head:
                    self.note("metadata_repaired", "")
                found.pop("traceEvents")
                self.metadata = found
                self._advance(match.end() + 1)
                return True
        return False

    def _no_trace(self, text: bytes) -> SourceError:
        if not text:
            return SourceError("E-EMPTY", "The file holds only blanks. Record or copy it again.")
        if text[:1] not in b"{":
            return SourceError("E-TYPE", "This is not a torch.profiler trace: it does not begin with { or [.")
        try:
            found = msgspec.json.decode(text)
        except RecursionError:
            return SourceError("E-DEPTH", "The file is nested too deeply for a trace.")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            return SourceError(
                "E-JSON", f"No traceEvents, and no valid JSON ({error}). Export the trace with prof.export_chrome_trace(...)."
            )
        what = "an empty object" if not found else f"an object with the keys {', '.join(map(str, list(found)[:4]))}"
        return SourceError(
            "E-NOEV", f"This is {what}, without traceEvents. Export the trace with prof.export_chrome_trace(...)."
        )

    # -- blocks
    def _fill(self, size: int) -> bool:
        parts, held = [self._buffer], len(self._buffer)
        while held < size:
            piece = next(self._pieces, b"")
            if not piece:
                self._buffer = b"".join(parts)
                return False
            parts.append(piece)
            held += len(piece)
        self._buffer = b"".join(parts)
        return True

    def _advance(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    def _cut(self) -> int | None:
        """Return where the last whole event of the buffer seems to end, and drop the comma behind it when advancing."""
        size, window = len(self._buffer), 64 << 10
        while True:
            cuts = [match.start() for match in CUT.finditer(self._buffer, max(0, size - window))]
            if cuts:
                return cuts[-1] + 1
            if window >= size:
                return None
            window *= 8

    def _skip_comma(self) -> None:
        text = self._buffer.lstrip(BLANK)
        if text.startswith(b","):
            text = text[1:].lstrip(BLANK)
        self._advance(len(self._buffer) - len(text))

    def _closing(self, block: bytes, message: str) -> list[Event] | None:
        """Return the events of ``block`` where it holds the array's end, and stand behind the bracket."""
        match = TRAILING.search(message)
        if match is None:
            return None
        end = block.rfind(b"]", 0, int(match.group(1)))
        try:
            events = EVENTS.decode(b"[%b]" % block[:end])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        self._advance(end + 1)
        return events

    # -- the tolerant lane
    def _tolerant(self, more: bool) -> list[Event]:
        """Read the buffer event by event: mend, skip and count; stop at the array's end or where more text is needed."""
        text, events = self._buffer, []
        borders = [m.start() + 1 for m in BORDER.finditer(text)]
        ends = borders if more and borders else [*borders, len(text)]
        start, i = 0, 0
        while i < len(ends):
            for j in range(i, min(i + MAX_JOINS, len(ends))):
                event, used = self._one(text[start : ends[j]].lstrip(b", \t\r\n"), last=j > i)
                if event is not None:
                    break
            if event is None:
                piece = text[start : ends[i]].lstrip(b", \t\r\n")
                if piece.startswith(b"]"):
                    start = ends[i] - len(piece) + 1
                    self._closed = True
                    break
                self._skip(piece, last=not more and i == len(ends) - 1)
                start, i = ends[i], i + 1
                continue
            events.append(event)
            if used is not None:
                self._closed = True
                self._buffer = used + text[ends[j] :]
                return events
            start, i = ends[j], j + 1
        self._advance(start)
        return events

    def _skip(self, piece: bytes, last: bool) -> None:
        if not piece:
            return
        if last and not piece.rstrip(BLANK).endswith(b"}"):
            self.truncated = True
            self.note("event_cut", piece)
        else:
            self.note("event_unreadable", piece)

    def _one(self, text: bytes, last: bool) -> tuple[Event | None, bytes | None]:
        """Decode one event, mended where needed; also return what follows the array's end when it lies in ``text``."""
        event, rest = _decode(text)
        if event is not None or last:
            return event, rest
        mended, kinds = repair(text)
        event, rest = _decode(mended)
        if event is not None:
            for kind in kinds:
                self.note(f"mended_{kind}", text)
        return event, rest

    # -- what stands behind the events
    def _read_tail(self) -> None:
        limit = self._limits.metadata_bytes
        if self._fill(limit):
            self.note("tail_long", self._buffer)
            for _ in self._pieces:  # the hash needs every byte
                pass
        text = self._buffer.strip(BLANK)
        self._buffer = b""
        if self.bare_list:
            if text:
                self.note("tail", text)
            return
        found = self._tail_object(b'{"":0' + text)
        found.pop("", None)
        if "traceEvents" in found:
            self.note("second_events", "")
            found.pop("traceEvents")
        self.metadata.update(found)

    def _tail_object(self, text: bytes) -> dict[str, Any]:
        for candidate in (text, repair(text)[0]):
            try:
                return msgspec.json.decode(candidate, type=dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                if match := TRAILING.search(str(error)):
                    end = candidate.rfind(b"}", 0, int(match.group(1))) + 1
                    try:
                        found = msgspec.json.decode(candidate[:end], type=dict[str, Any])
                    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                        continue
                    self.note("tail", candidate[end:])
                    return found
        self.truncated = True
        found = {}
        for pair in PAIR.finditer(text):
            try:
                found[pair.group(1).decode()] = msgspec.json.decode(pair.group(2))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
        return found


def _decode(text: bytes) -> tuple[Event | None, bytes | None]:
    try:
        return EVENT.decode(text), None
    except msgspec.ValidationError:
        return _loose(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        match = TRAILING.search(str(error))
        if match is None:
            return None, None
        end = text.rfind(b"}", 0, int(match.group(1))) + 1
        rest = text[end:].lstrip(b", \t\r\n")
        if end and rest.startswith(b"]"):
            event, more = _decode(text[:end])
            return (event, rest[1:]) if more is None else (None, None)
        return None, None


def _loose(text: bytes) -> tuple[Event | None, bytes | None]:
    """Decode an event whose ph, cat or name is no string."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None, None
    event = Event()
    for key in ("ph", "cat", "name"):
        value = msgspec.json.decode(fields[key]) if key in fields else ""
        setattr(event, key, value if isinstance(value, str) else "")
    for key in ("pid", "tid", "ts", "dur", "args"):
        if key in fields:
            setattr(event, key, fields[key])
    return event, None
