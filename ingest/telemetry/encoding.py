"""Convert UTF-16 text, which Windows PowerShell's ``>`` and Excel write, to UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator

BOMS = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
BOMS_OF_UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
CHECKED_BYTES = 512  # The beginning of a file is checked. In UTF-16 of Latin letters, every second byte is 0.
# At least this share of every second byte must be 0. It is below 1 because of other characters, such as ℃ (U+2103).
MIN_ZERO_SHARE = 0.9


def find_encoding(head: bytes) -> str | None:
    """Return utf-16-le or utf-16-be for text in UTF-16, else None."""
    if head.startswith(BOMS_OF_UTF32):
        return None
    for bom, name in BOMS:
        if head.startswith(bom):
            return name
    start = head[:CHECKED_BYTES]
    even, odd = start[::2], start[1::2]
    if len(odd) < 8:
        return None
    if odd.count(0) >= MIN_ZERO_SHARE * len(odd) and not even.count(0):
        return "utf-16-le"
    if even.count(0) >= MIN_ZERO_SHARE * len(even) and not odd.count(0):
        return "utf-16-be"
    return None


def as_utf8(head: bytes) -> bytes:
    """Return ``head`` as UTF-8 without a byte order mark if it is UTF-16, else unchanged."""
    return b"".join(decode_pieces(iter([head]), find_encoding(head)))


def decode_pieces(pieces: Iterable[bytes], encoding: str | None) -> Iterator[bytes]:
    """Yield ``pieces`` of a text in ``encoding`` as UTF-8; yield them unchanged if ``encoding`` is None."""
    if encoding is None:
        yield from pieces
        return
    decoder, first = codecs.getincrementaldecoder(encoding)(errors="replace"), True
    for piece in pieces:
        text = decoder.decode(piece)
        if first and text:
            text, first = text.removeprefix("\ufeff"), False
        yield text.encode("utf-8", errors="replace")
