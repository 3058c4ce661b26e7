"""Sentences with strangers' names in them, for GitHub and for terminals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sawtooth.app import format as fmt

# no underscore within a word, which Markdown leaves alone, and no sign that begins nothing there: the file itself is read, too
_SPECIAL = re.compile(r"([\\`*\[\]|~]|&(?=#?\w+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[>#+-](?=\s|[>#]))")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # begins one also for readers that know no backslash
# mentions, references, addresses and icons such as :tada:
_JOINED = re.compile(r"(@|#(?=\d)|:(?=//|[a-z+][\w+-]*:)|w(?=ww\.))", re.IGNORECASE)


def as_written(sentence: str) -> str:
    """Return a sentence so that GitHub shows it as written: no markup, formula, mention, reference or link."""
    joined = _JOINED.sub("\\1\u2060", _SPECIAL.sub(r"\\\1", fmt.clean(sentence)))
    joined = joined.replace("$", "&#36;")  # of a formula, which no backslash prevents
    return _TAG.sub("&lt;", joined)


def table(head: str, columns: Sequence[str], cells: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """Return a Markdown table under ``head``, which is Markdown already; ``numbers``: all but the first column are."""
    rule = " ---: |" if numbers else " --- |"
    rows = [f"| {' | '.join(map(as_written, row))} |" for row in (columns, *cells)]
    return "\n".join([head, "", rows[0], f"| --- |{rule * (len(columns) - 1)}", *rows[1:], ""])


def for_terminals(lines: Iterable[str]) -> str:
    """Return lines in which no name moves the cursor, changes colours or sets the window's title."""
    return "".join(f"{fmt.clean(line)}\n" for text in lines for line in text.split("\n"))
