"""The text of a call site in ``step_marks``: the lines that call a step, innermost first, or the place's number where its lines are not known."""

from __future__ import annotations

from collections.abc import Iterable

_BETWEEN_LINES, _NUMBER = " < ", "#"


def site_of_lines(lines: Iterable[str]) -> str:
    """Return the text of a place whose lines, innermost first, are known: ``model.py:12 < train.py:40``."""
    return _BETWEEN_LINES.join(lines)


def site_of_number(number: int) -> str:
    """Return the text of a place of which only its number by first appearance is known."""
    return f"{_NUMBER}{number}"


def lines_of(site: str | None) -> list[str]:
    """Return the lines of a site's text, innermost first; none where they are not known."""
    return [] if not site or site.startswith(_NUMBER) else site.split(_BETWEEN_LINES)
