"""A line of a table that shows two runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

A_REASON = 24  # characters from which a change is a sentence


class Row(NamedTuple):
    """What is compared, its value on either side, and how it changed or what the change explains, in words."""

    what: str
    a: str
    b: str
    change: str


def reasons_once(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with a reason that several share written out at the first of them alone."""
    written: set[str] = set()
    shown = []
    for row in rows:
        shown.append(row._replace(change="for the same reason") if row.change in written else row)
        if len(row.change) >= A_REASON:
            written.add(row.change)
    return shown
