"""Sentences with strangers' names in them, for GitHub and for terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sawtooth.app import format as fmt

_SPECIAL = re.compile(r"([\\`*_\[\]|~])")
_JOINED = re.compile(r"(@|#(?=\d)|:(?=//)|w(?=ww\.))", re.IGNORECASE)


def as_written(sentence: str) -> str:
    """Return a sentence so that GitHub shows it as written: no markup, mention, reference or link."""
    escaped = _SPECIAL.sub(r"\\\1", fmt.clean(sentence).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return _JOINED.sub("\\1\u2060", escaped)


def for_terminals(lines: Iterable[str]) -> str:
    """Return lines in which no name moves the cursor, changes colours or sets the window's title."""
    return "".join(f"{fmt.clean(line)}\n" for text in lines for line in text.split("\n"))
