"""Cut the text of a trace into blocks at event borders and give out decoded events; memory stays at a few blocks.

A cut is guessed (the last ``}, {`` of a block) and proved: a block that starts at a real event only decodes as a JSON
array when it also ends at one. What does not decode goes through the tolerant lane, event by event.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.source import Limits
from sawtooth.ingest.trace.torch_json.events import (
    DECODE_ERRORS,
    LEAD_BYTES,
    TRAILING,
    Decoded,
    Event,
    bare,
    brackets,
    decode_events,
    decode_one,
    first_object,
    incomplete,
)
from sawtooth.ingest.trace.torch_json.repair import repair

BLOCK_BYTES = 1 << 20  # its events fit into a core's cache: with 4 MB each takes a fifth longer, with 256 kB too
CUT_BYTES = 8 << 10  # where a cut is looked for first: most events are shorter
CUT = re.compile(rb"\}\s*,\s*(?=\{)")
START = re.compile(rb'"traceEvents"\s*:\s*')
PAIR = re.compile(rb'"(\w+)"\s*:\s*("(?:[^"\\]|\\.)*"|-?[\d.]+)\s*[,}]')
BLANK = b" \t\r\n"
MAX_STARTS = 64  # places where the array seems to begin: each costs a look at all before it
MAX_JOINS = 64  # nested objects of one event that the border pattern may have cut apart; kineto nests none
MENDED_BYTES = 4 << 20  # beside the events: mending takes a hundred times the memory, and who writes as much writes JSON
DEEP = 500  # brackets in an event that does not decode: it is nested beyond any decoder's limit
EXAMPLE_BYTES = 200  # as diagnostics.example says


def too_deep() -> SourceError:
    """Return the refusal of a file that nests beyond any decoder's limit."""
    return SourceError(
        "E-DEPTH", f"The file nests brackets more than {DEEP} deep, which no trace does. Record or copy it again."
    )


class Document:
    """The structure around the events: give it the bytes, iterate ``events()``, then read what else it found."""

    def __init__(
        self,
        pieces: Iterator[bytes],
        limits: Limits,
        block_bytes: int = BLOCK_BYTES,
        decode: Callable[[bytes], list[Any]] = decode_events,
    ) -> None:
        """``decode`` makes events of a JSON array of them; those that are damaged are an ``Event`` each whatever it makes."""
        self._block_bytes = block_bytes
        self._decode = decode
        self._pieces = pieces
        self._limits = limits
        self._buffer = b""
        self._offset = 0  # of the buffer in the uncompressed source
        self.metadata: dict[str, Any] = {}
        self.truncated = False
        self.bare_list = False
        self._closed = False  # the array's closing bracket was met
        self._ended = False
        self._starts, self._looked = 0, 0  # how often the name of the array stood elsewhere, and up to where that is known
        self._wanted = block_bytes
        self.notes: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def note(self, key: str, example: bytes | str, count: int = 1) -> None:
        """Count one trouble and keep its first example."""
        self.notes[key] += count
        text = example if isinstance(example, str) else example[:EXAMPLE_BYTES].decode(errors="replace")
        self.examples.setdefault(key, text)

    def cut_early(self) -> SourceError:
        """Return the refusal of a file that ends before its first event."""
        end = self._offset + len(self._buffer)
        sentence = f"The file ends after {end:,} bytes, before its first event: the job or the copy was stopped. Record or copy it again."
        return SourceError("E-TRUNC", sentence, offset=end)

    def events(self) -> Iterator[list[Event]]:
        """Yield events in file order, some thousands at a time. Raises SourceError where there are none to be read."""
        self.begin()
        while (events := self.step()) is not None:
            yield events

    def begin(self) -> None:
        """Read what stands before the events. Raises SourceError where there are none."""
        self._find_array()

    def step(self) -> list[Event] | None:
        """Return the next events, None behind the last."""
        while not self._ended:
            if self._closed:
                self._end()
                break
            more = self._fill(self._wanted)
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
                    if (events := self._strict(self._buffer)) is not None:  # the last event, and much behind the array
                        return events
                    raise self._too_long()
                self._wanted = size + self._block_bytes
                continue
            events = self._strict(self._buffer[:cut])
            if events is None:
                events = self._tolerant(more)
            self._wanted = self._block_bytes + (len(self._buffer) if len(self._buffer) == size else 0)
            return events
        return None

    def _end(self) -> None:
        self._ended = True
        if self._closed:
            self._read_tail()
        else:
            self.truncated = True

    # -- blocks for others to decode
    def block(self) -> bytes | None:
        """Cut off a block that seems to hold whole events, without a proof; None where only ``step`` can go on."""
        if self._ended or self._closed or not self._fill(1):
            return None
        head = self._buffer[:LEAD_BYTES]
        lead = len(head) - len(bare(head))
        if not self._fill(lead + self._block_bytes):
            return None
        cut = self._cut(lead)  # where ``step`` would cut, which first drops the comma
        if cut is None:
            return None
        block = self._buffer[:cut]
        self._advance(cut)
        return block

    def put_back(self, blocks: list[bytes]) -> None:
        """Take back the last ``blocks`` that were cut off, in their order: the first of them does not decode."""
        self._buffer = b"".join([*blocks, self._buffer])
        self._offset -= sum(map(len, blocks))

    def _strict(self, block: bytes) -> list[Event] | None:
        """Decode ``block`` as whole events, to the array's end where it lies inside; None where it does not decode."""
        try:
            events = self._decode(b"[%b]" % block)
        except DECODE_ERRORS as error:
            return self._closing(block, str(error))
        self._advance(len(block))
        return events

    def _too_long(self) -> SourceError:
        sentence = f"The event at byte {self._offset:,} is longer than {self._limits.event_bytes >> 20} MB. No profiler writes such events: the file is damaged there. Record or copy it again."
        return SourceError("E-TOKEN", sentence, offset=self._offset)

    # -- what stands before the events
    def _find_array(self) -> None:
        while True:
            more = self._fill(len(self._buffer) + self._block_bytes)
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
            if len(self._buffer) <= self._limits.metadata_bytes:
                if not more:
                    raise self._no_trace(text)
            else:
                raise SourceError(
                    "E-LIMIT",
                    f"No traceEvents within the first {self._limits.metadata_bytes >> 20} MB. Export the trace with prof.export_chrome_trace(...).",
                )

    def _enter_array(self, last: bool) -> bool:
        for match in itertools.islice(START.finditer(self._buffer, self._looked), MAX_STARTS - self._starts):
            head = self._buffer[: match.start()] + b'"traceEvents":0}'
            for text in _readings(head):
                try:
                    document = msgspec.json.decode(text)
                except DECODE_ERRORS:
                    continue
                if self._buffer[match.end() : match.end() + 1] != b"[":
                    if match.end() == len(self._buffer):
                        if last:
                            raise self.cut_early()
                        return False
                    raise SourceError("E-NOEV", "traceEvents is not a list, so there are no events. Record the trace again.")
                if text is not head:
                    self.note("metadata_repaired", "")
                document.pop("traceEvents")
                self.metadata = document
                self._advance(match.end() + 1)
                return True
            self._starts, self._looked = self._starts + 1, match.end()
        return False

    def _no_trace(self, text: bytes) -> SourceError:
        """Return the refusal of a whole file (or the beginning of a long one) that has no list of events."""
        if not text:
            return SourceError("E-EMPTY", "The file holds only blanks. Record or copy it again.")
        if not text.startswith(b"{"):
            return SourceError(
                "E-TYPE",
                f"This is neither a torch.profiler trace, which begins with {{ or [, nor telemetry that Sawtooth knows: it begins with {_shown(text)}. Give a trace's .json or .json.gz.",
            )
        advice = "Export the trace with prof.export_chrome_trace(...)."
        try:
            document = msgspec.json.decode(text)
        except RecursionError:
            return too_deep()
        except UnicodeDecodeError:
            return SourceError("E-ENC", f"The file has no traceEvents and is no UTF-8 text. {advice}")
        except msgspec.MsgspecError as error:
            if "truncated" in str(error):
                return self.cut_early()
            if re.match(rb"\{[^\n]*\}\s*\n\s*\{", text):
                return SourceError(
                    "E-TYPE", f"This is one JSON object per line, not a trace or telemetry that Sawtooth knows. {advice}"
                )
            match = re.search(r"byte (\d+)", str(error))
            offset = int(match.group(1)) if match else 0
            line = text.count(b"\n", 0, offset) + 1
            return SourceError(
                "E-JSON",
                f"The file has no traceEvents and is no valid JSON (line {line}, byte {offset}). {advice}",
                offset=offset,
            )
        if {"entries", "pg_config"} <= document.keys():
            return SourceError(
                "E-NOEV",
                "This is PyTorch's flight recorder of collectives, which holds no GPU work. Drop the traces of the job's ranks: "
                f"who waits for whom is on the Ranks page. {advice}",
            )
        what = f"an object with the keys {', '.join(map(str, list(document)[:4]))}" if document else "an empty object"
        return SourceError("E-NOEV", f"This is {what}, without traceEvents. {advice}")

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

    def _cut(self, lead: int = 0) -> int | None:
        """Return where the last whole event seems to end among the wanted bytes behind ``lead``."""
        size, window = min(len(self._buffer), lead + self._wanted), CUT_BYTES
        while True:
            cuts = [match.start() for match in CUT.finditer(self._buffer, max(0, size - window), size)]
            if cuts:
                return cuts[-1] + 1
            if window >= size:
                return None
            window *= 8

    def _skip_comma(self) -> None:
        if self._buffer[:1] == b"{":
            return
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
            events = self._decode(b"[%b]" % block[:end])
        except DECODE_ERRORS:
            return None
        self._advance(end + 1)
        self._closed = True
        return events

    # -- the tolerant lane
    def _tolerant(self, more: bool) -> list[Event]:
        """Read the buffer event by event: mend, skip and count; stop at the array's end or where more text is needed."""
        text, events, start, i = self._buffer[: self._wanted] if more else self._buffer, [], 0, 0
        borders = [match.start() + 1 for match in CUT.finditer(text)]
        ends = borders if more else [*borders, len(text)]
        while i < len(ends):
            last, decoded, incomplete = self._joined(text, start, ends, i)
            if (
                decoded is None
                and incomplete
                and last + 1 == len(ends)
                and (not more or len(text) - start < self._limits.event_bytes)
            ):
                if more:
                    break
                last = len(ends) - 1
                decoded = self._cut_off(bare(text[start:]))
            elif decoded is None:
                piece = bare(text[start : ends[i]])
                event, used = self._skip(piece)
                if event is not None:
                    events.append(event)
                if used < len(piece):
                    start = ends[i] - len(piece) + used
                    continue
            if decoded is not None:
                event, rest = decoded
                if event is not None:
                    events.append(event)
                if rest is not None:
                    self._closed = True
                    self._buffer = rest + self._buffer[ends[last] :]
                    return events
            start, i = ends[last], last + 1
        self._advance(start)
        return events

    def _joined(self, text: bytes, start: int, ends: list[int], first: int) -> tuple[int, Decoded, bool]:
        """Decode the event from ``start``, mended where needed, over as many borders as lie inside it.

        Returns the border where it ended, what was found, and where nothing was, whether the event only lacks its end.
        """
        for last in range(first, min(len(ends), first + MAX_JOINS)):
            piece = bare(text[start : ends[last]])
            if piece.startswith(b"]"):
                return last, (None, piece[1:]), False
            decoded = decode_one(piece)
            if decoded is not None:
                return last, decoded, False
            mended, kinds = repair(piece)
            decoded = decode_one(mended)
            if decoded is not None:
                for kind in kinds:
                    self.note(f"mended_{kind}", piece)
                return last, decoded, False
            if not incomplete(mended):
                break
        else:
            return last, None, True
        return first, None, False

    def _skip(self, piece: bytes) -> tuple[Event | None, int]:
        """Pass over what is no event, counted; return how much, and the event that may stand before it."""
        if used := first_object(piece):
            decoded = decode_one(piece[:used])
            return (decoded[0] if decoded else None), used
        inside = 0 if piece.startswith(b"{") else piece.find(b"{")
        used = inside if inside > 0 else len(piece)
        if piece:
            self.note("event_deep" if brackets(piece) > DEEP else "event_unreadable", piece[:used])
        return None, used

    def _cut_off(self, piece: bytes) -> Decoded:
        self.truncated = True
        if piece:
            self.note("event_deep" if brackets(piece) > DEEP else "event_cut", piece)
        return None

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
        tail = self._tail_object(b'{"":0' + text)
        tail.pop("", None)
        if "traceEvents" in tail:
            self.note("second_events", "")
            tail.pop("traceEvents")
        self.metadata.update(tail)

    def _tail_object(self, text: bytes) -> dict[str, Any]:
        for candidate in _readings(text):
            try:
                return msgspec.json.decode(candidate, type=dict[str, Any])
            except DECODE_ERRORS as error:
                if match := TRAILING.search(str(error)):
                    end = candidate.rfind(b"}", 0, int(match.group(1))) + 1
                    try:
                        tail = msgspec.json.decode(candidate[:end], type=dict[str, Any])
                    except DECODE_ERRORS:
                        continue
                    self.note("tail", candidate[end:])
                    return tail
        self.truncated = True
        tail = {}
        for pair in PAIR.finditer(text):
            try:
                tail[pair.group(1).decode()] = msgspec.json.decode(pair.group(2))
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
        return tail


def _readings(text: bytes) -> Iterator[bytes]:
    """Yield a text, and where that is not enough what mending makes of it."""
    yield text
    if len(text) <= MENDED_BYTES:
        yield repair(text)[0]


def _shown(text: bytes) -> str:
    """Return the beginning of a file as it can be put in a sentence."""
    return repr(text[:24].split(b"\n")[0].decode(errors="replace"))
