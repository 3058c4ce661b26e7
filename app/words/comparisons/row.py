"""A line of a table that shows two runs beside each other."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """What is compared, its value on either side, and how it changed or what the change explains, in words."""

    what: str
    a: str
    b: str
    change: str
