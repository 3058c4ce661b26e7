"""Takes the values of environment variables out of JSON text that is read in pieces, in bounded memory however long they are."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator

_NAME = rb'"env(?:iron(?:ment)?)?(?:_?var(?:iable)?s)?"'
OPENING = re.compile(_NAME + rb"\s{0,64}:\s{0,64}[{\[]", re.IGNORECASE)
OPENING_BYTES = 192  # no opening is longer
OUTSIDE_TEXT = re.compile(rb'["{}\[\]]')
INSIDE_TEXT = re.compile(rb'\\.|"', re.DOTALL)


def without_environments(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of ``pieces`` with each object or list under a key such as ``env`` or ``environment`` empty.

    One that never ends goes to the end of the text: a file that was cut off inside it keeps none of its values.
    """
    body: _Body | None = None
    rest = b""
    for piece in itertools.chain(pieces, (None,)):
        rest += piece or b""
        while True:
            if body is not None:
                end = body.end(rest)
                if end is None:
                    rest = body.unread
                    break
                body, rest = None, rest[end:]
            opening = OPENING.search(rest)
            if opening is None:
                kept = len(rest) if piece is None else max(0, len(rest) - OPENING_BYTES)
                yield rest[:kept]
                rest = rest[kept:]
                break
            yield rest[: opening.end()]
            body, rest = _Body(), rest[opening.end() :]


class _Body:
    """How far the object or list is read that goes: its brackets, but for those inside quotes."""

    def __init__(self) -> None:
        self.unread = b""  # a backslash at the end of a piece, whose next byte is in the next one
        self._depth = 1
        self._quoted = False

    def end(self, text: bytes) -> int | None:
        """Return where in ``text`` the closing bracket stands, None where it comes later."""
        at = 0
        while mark := (INSIDE_TEXT if self._quoted else OUTSIDE_TEXT).search(text, at):
            at = mark.end()
            if mark[0] == b'"':
                self._quoted = not self._quoted
            elif mark[0] in b"{[":
                self._depth += 1
            elif mark[0] in b"}]":
                self._depth -= 1
                if self._depth == 0:
                    return mark.start()
        self.unread = b"\\" if self._quoted and text.endswith(b"\\", at) else b""
        return None
