"""Remove the values of environment variables from JSON text that is read in pieces.

The memory used does not depend on the length of the values.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

_NAME = rb"env(?:iron(?:ment)?)?(?:_?var(?:iable)?s)?"
# The patterns match four notations: JSON, JSON inside a JSON string (\"env\": {), a Python dict ('env': {), and Python's
# output for os.environ. Each has its own pattern, because a search for one literal beginning is thirty times as fast as a
# search for alternatives.
OPENINGS = (
    re.compile(rb'"%b(?P<slashes>\\{0,63})"\s{0,64}:\s{0,64}[{\[]' % _NAME, re.IGNORECASE),
    re.compile(rb"'%b'\s{0,64}:\s{0,64}[{\[]" % _NAME, re.IGNORECASE),
    re.compile(rb"environ\(\{"),
)
OPENING_BYTES = 256  # No match of OPENINGS is longer.
OUTSIDE_TEXT = re.compile(rb"""(\\*)(["'])|[{}\[\]]""")
INSIDE_TEXT = {quote: re.compile(rb"(\\*)([%b\"])" % quote) for quote in (b'"', b"'")}
REPR_IN_JSON = 2  # Escape level of a Python dict inside a JSON string, which doubles the backslashes.


def without_environments(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of ``pieces`` without the objects and lists under keys such as ``env``.

    An object without an end extends to the end of the text, so that no value of a truncated file remains.
    """
    body: _Body | None = None
    rest = b""
    for piece in itertools.chain(pieces, (None,)):
        rest += piece or b""
        openings, position = _Openings(rest), 0
        while True:
            if body is not None:
                end = body.end(rest, position)
                if end is None:
                    rest = body.unread
                    break
                body, position = None, end
            opening = openings.first_from(position)
            if opening is None:
                yielded_end = len(rest) if piece is None else max(position, len(rest) - OPENING_BYTES)
                yield rest[position:yielded_end]
                rest = rest[yielded_end:]
                break
            yield rest[position : opening.end()]
            is_json = opening.re is OPENINGS[0]
            body = _Body(len(opening["slashes"]) + 1, b'"') if is_json else _Body(REPR_IN_JSON, b"\"'")
            position = opening.end()


class _Openings:
    """The positions in one text at which environments begin.

    Each pattern is searched from its last match on, so that all openings are found in one pass.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._next = {pattern: pattern.search(text) for pattern in OPENINGS}

    def first_from(self, position: int) -> re.Match[bytes] | None:
        """Return the first opening at ``position`` or later. ``position`` must not decrease from call to call."""
        for pattern, match in self._next.items():
            if match is not None and match.start() < position:
                self._next[pattern] = pattern.search(self._text, position)
        return min(filter(None, self._next.values()), key=re.Match.start, default=None)


class _Body:
    """Search for the end of an object or list that is removed, by counting brackets outside quotes.

    ``unit`` backslashes in the text stand for one backslash, because each enclosing JSON text doubles backslashes. ``quotes`` are the
    characters that begin a string.
    """

    def __init__(self, unit: int, quotes: bytes) -> None:
        self.unread = b""  # Backslashes at the end of a piece, which belong to the start of the next piece.
        self._unit = unit
        self._quotes = quotes
        self._depth = 1
        self._quoted: bytes | None = None

    def end(self, text: bytes, start: int) -> int | None:
        """Return the position of the closing bracket in ``text`` after ``start``, or None.

        The closing quote of the enclosing JSON text also ends the object.
        """
        while mark := (INSIDE_TEXT[self._quoted] if self._quoted else OUTSIDE_TEXT).search(text, start):
            start = mark.end()
            if mark[0] in b"{[":
                self._depth += 1
            elif mark[0] in b"}]":
                self._depth -= 1
                if self._depth == 0:
                    return mark.start()
            elif mark[2] in self._quotes and self._passed_quote(mark[2], len(mark[1])):
                return mark.start()
        tail = len(text) - len(text.rstrip(b"\\"))
        self.unread = b"\\" * (min(tail, len(text) - start) % (2 * self._unit))
        return None

    def _passed_quote(self, quote: bytes, backslashes: int) -> bool:
        """Enter or leave a string at a quote after ``backslashes``, unless the quote is escaped.

        Return whether the quote ends the enclosing JSON text instead.
        """
        if quote == b'"':
            backslashes += 1  # JSON puts a backslash before a quote, and doubles existing backslashes.
            if backslashes % self._unit:
                return True
            backslashes -= self._unit
        escaped = backslashes // self._unit % 2
        if not escaped and self._quoted in (None, quote):
            self._quoted = None if self._quoted else quote
        return False
