"""Escape sentences with untrusted names, for GitHub and for terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sawtooth.app import format as fmt

# Only characters that Markdown interprets at their position are escaped, because people also read the file as plain text.
_SPECIAL = re.compile(r"([\\`*\[\]|~]|&(?=#?\w+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[>#+-](?=\s|[>#]))")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # The start of a tag. A backslash does not prevent a tag everywhere.
# Matches mentions, references, addresses and icons such as :tada:, which GitHub would replace.
_JOINED = re.compile(r"(@|#(?=\d)|:(?=//|[a-z+][\w+-]*:)|w(?=ww\.))", re.IGNORECASE)


def as_written(sentence: str) -> str:
    """Return a sentence that GitHub shows as written: without markup, formula, mention or link."""
    joined = _JOINED.sub("\\1\u2060", _SPECIAL.sub(r"\\\1", fmt.clean(sentence)))
    joined = joined.replace("$", "&#36;")  # A backslash does not prevent a formula.
    return _TAG.sub("&lt;", joined)


def table(columns: Sequence[str], cells: Iterable[Sequence[str]], *, words: int = 1) -> list[str]:
    """Return a Markdown table; columns after the first ``words`` are aligned to the right."""
    heads, *rows = (f"| {' | '.join(map(as_written, row))} |" for row in (columns, *cells))
    return [heads, f"|{' --- |' * words}{' ---: |' * (len(columns) - words)}", *rows]


def for_terminals(lines: Iterable[str]) -> str:
    """Return lines in which no name can move the cursor, change colours or set the window's title."""
    return "".join(f"{fmt.clean(line)}\n" for text in lines for line in text.split("\n"))
