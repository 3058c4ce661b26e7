"""A row of a table that shows two runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MIN_REASON_LENGTH = 24  # Characters. A longer text in the column of changes is a reason, not a change.


class ComparisonRow(NamedTuple):
    """The compared quantity, its values in A and B, and its change or the effect of its change."""

    what: str
    a: str
    b: str
    change: str


def reasons_once(rows: Sequence[ComparisonRow]) -> list[ComparisonRow]:
    """Return the rows with "for the same reason" instead of a repeated reason."""
    reasons: set[str] = set()
    shortened = []
    for row in rows:
        shortened.append(row._replace(change="for the same reason") if row.change in reasons else row)
        if len(row.change) >= MIN_REASON_LENGTH:
            reasons.add(row.change)
    return shortened
