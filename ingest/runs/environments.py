"""Remove the values of environment variables from JSON text that is read in pieces.

The memory used does not depend on the length of the values.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

_NAME = rb"env(?:iron(?:ment)?)?(?:_?var(?:iable)?s)?"
# Separate patterns, because a search for one literal beginning is thirty times as fast as for alternatives. They match JSON, also inside a
# JSON text (\"env\": {), Python's notation ('env': {), and Python's output for os.environ.
OPENINGS = (
    re.compile(rb'"%b(?P<slashes>\\{0,63})"\s{0,64}:\s{0,64}[{\[]' % _NAME, re.IGNORECASE),
    re.compile(rb"'%b'\s{0,64}:\s{0,64}[{\[]" % _NAME, re.IGNORECASE),
    re.compile(rb"environ\(\{"),
)
OPENING_BYTES = 256  # No match of OPENINGS is longer.
OUTSIDE_TEXT = re.compile(rb"""(\\*)(["'])|[{}\[\]]""")
INSIDE_TEXT = {quote: re.compile(rb"(\\*)([%b\"])" % quote) for quote in (b'"', b"'")}
REPR_IN_JSON = 2  # Level of Python's notation inside a JSON text, which doubles its backslashes.


def without_environments(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of ``pieces`` without the objects and lists under keys such as ``env``.

    An object without an end extends to the end of the text, so that a truncated file keeps none of its values.
    """
    body: _Body | None = None
    rest = b""
    for piece in itertools.chain(pieces, (None,)):
        rest += piece or b""
        openings, at = _Openings(rest), 0
        while True:
            if body is not None:
                end = body.end(rest, at)
                if end is None:
                    rest = body.unread
                    break
                body, at = None, end
            opening = openings.first_from(at)
            if opening is None:
                kept = len(rest) if piece is None else max(at, len(rest) - OPENING_BYTES)
                yield rest[at:kept]
                rest = rest[kept:]
                break
            yield rest[at : opening.end()]
            json = opening.re is OPENINGS[0]
            body = _Body(len(opening["slashes"]) + 1, b'"') if json else _Body(REPR_IN_JSON, b"\"'")
            at = opening.end()


class _Openings:
    """The positions in one text at which environments begin.

    Each pattern is searched from its last match on, so that all openings are found in one pass.
    """

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._ahead = {pattern: pattern.search(text) for pattern in OPENINGS}

    def first_from(self, at: int) -> re.Match[bytes] | None:
        """Return the first opening at ``at`` or later; ``at`` must not decrease from call to call."""
        for pattern, match in self._ahead.items():
            if match is not None and match.start() < at:
                self._ahead[pattern] = pattern.search(self._text, at)
        return min(filter(None, self._ahead.values()), key=re.Match.start, default=None)


class _Body:
    """Finds the end of an object or list that is removed, by counting brackets outside quotes.

    ``unit`` backslashes in the text stand for one, because each enclosing JSON text doubles them. ``quotes`` are the characters that begin
    a string.
    """

    def __init__(self, unit: int, quotes: bytes) -> None:
        self.unread = b""  # backslashes at the end of a piece, which belong to the start of the next piece
        self._unit = unit
        self._quotes = quotes
        self._depth = 1
        self._quoted: bytes | None = None

    def end(self, text: bytes, at: int) -> int | None:
        """Return the position of the closing bracket in ``text`` from ``at`` on; None if a later piece has it.

        The closing quote of the enclosing JSON text also ends the object.
        """
        while mark := (INSIDE_TEXT[self._quoted] if self._quoted else OUTSIDE_TEXT).search(text, at):
            at = mark.end()
            if mark[0] in b"{[":
                self._depth += 1
            elif mark[0] in b"}]":
                self._depth -= 1
                if self._depth == 0:
                    return mark.start()
            elif mark[2] in self._quotes and self._passed_quote(mark[2], len(mark[1])):
                return mark.start()
        tail = len(text) - len(text.rstrip(b"\\"))
        self.unread = b"\\" * (min(tail, len(text) - at) % (2 * self._unit))
        return None

    def _passed_quote(self, quote: bytes, backslashes: int) -> bool:
        """Enter or leave a string at a quote after ``backslashes``, unless the quote is escaped.

        Return whether the quote ends the enclosing JSON text instead.
        """
        if quote == b'"':
            backslashes += 1  # JSON puts a backslash before its quote, and doubles the existing ones
            if backslashes % self._unit:
                return True
            backslashes -= self._unit
        escaped = backslashes // self._unit % 2
        if not escaped and self._quoted in (None, quote):
            self._quoted = None if self._quoted else quote
        return False
