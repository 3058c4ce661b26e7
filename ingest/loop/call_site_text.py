"""Text of a call site in ``step_marks``.

The text lists the lines that call a step, innermost first. If the lines are not known, the text is the number of the site.
"""

from __future__ import annotations

from collections.abc import Iterable

_BETWEEN_LINES, _NUMBER = " < ", "#"


def lines_text(lines: Iterable[str]) -> str:
    """Return the text of a site from its lines, innermost first: ``model.py:12 < train.py:40``."""
    return _BETWEEN_LINES.join(lines)


def number_text(number: int) -> str:
    """Return the text of a site with unknown lines; ``number`` counts sites in order of first appearance."""
    return f"{_NUMBER}{number}"


def lines_of(site: str | None) -> list[str]:
    """Return the lines in a site's text, innermost first; [] if the lines are not known."""
    return [] if not site or site.startswith(_NUMBER) else site.split(_BETWEEN_LINES)
