"""A row of a table that shows two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

A_REASON = 24  # Characters from which a change is a whole sentence.


class ComparisonRow(NamedTuple):
    """The compared quantity, its values, and its change or what the change explains, in words."""

    what: str
    a: str
    b: str
    change: str


def reasons_once(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows with a repeated reason written out only once."""
    written: set[str] = set()
    printed = []
    for row in rows:
        printed.append(row._replace(change="for the same reason") if row.change in written else row)
        if len(row.change) >= A_REASON:
            written.add(row.change)
    return printed
