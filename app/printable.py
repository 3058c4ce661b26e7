"""Aligned columns, and texts without characters that move a cursor, reverse a line or are invisible."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # Characters of these Unicode categories are not visible.
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")


def printable(text: str, allowed: str = "") -> str:
    """Return ``text`` with each such character replaced by a space, except characters in ``allowed``."""
    return _NOT_PLAIN.sub(lambda sign: " " if _is_invisible(sign[0], allowed) else sign[0], text)


def json_text(value: Any, indent: int | None = None) -> str:
    """Return JSON with readable names in which only such characters are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _NOT_PLAIN.sub(lambda sign: json.dumps(sign[0])[1:-1] if _is_invisible(sign[0], "\n") else sign[0], text)


def aligned(rows: Sequence[Sequence[str]], sides: str = "<") -> list[str]:
    """Return the rows of a table as lines with aligned columns.

    ``sides`` has < or > for each column; its last character is for all further columns.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    formats = [f"{side}{width}" for side, width in zip(sides.ljust(len(widths), sides[-1]), widths, strict=True)]
    return ["  ".join(map(format, row, formats)).rstrip() for row in rows]


def _is_invisible(sign: str, allowed: str) -> bool:
    return sign not in allowed and unicodedata.category(sign) in INVISIBLE_CATEGORIES
