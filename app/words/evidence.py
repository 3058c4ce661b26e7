"""The evidence of a finding as a table, and a report's lines about samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.app import format as fmt
from sawtooth.app.theme import CAUSES, OWNERS
from sawtooth.app.words import telemetry
from sawtooth.app.words.causes import place
from sawtooth.app.words.run import why_unchecked

Rows = tuple[list[str], list[list[str]]]

_BY_UNIT: dict[str, Callable[[float], str]] = {
    "ms": fmt.duration_ms,
    "us": lambda value: fmt.duration_ns(value * 1e3),
    "ns": fmt.duration_ns,
    "bytes": fmt.bytes_,
    "share": fmt.share,
}
MAX_COLUMNS = 4  # More columns do not fit next to the change.
MAX_NUMBERS = 2  # If columns must be left out, these first columns of numbers stay.
_HIDDEN_COLUMNS = ("start_ns", "end_ns", "devices", "recording")  # A link shows these times and ids.
# These columns have names to search for in the code. The most reliable column comes first.
_NAME_COLUMNS = ("place", "operator", "flop_operator", "module")
_LEAST_USEFUL = ("cause", "owner", "phase")  # The finding's title usually contains their values.
_HEADINGS = {"ms": "Time", "us": "Time", "ns": "Time", "share": "Share", "bytes": "Bytes"}


def table(finding: Finding) -> Rows:
    """Return the headings and cells of a finding's evidence; no rows without evidence.

    Only rows with the columns of the first row are shown. Empty columns, and the least useful of many columns, are left out.
    """
    rows = [row for row in finding.evidence if row.keys() == finding.evidence[0].keys()]
    constant = {key for key in _LEAST_USEFUL if len(rows) > 1 and len({row.get(key) for row in rows}) == 1}
    filled = [
        key
        for key in (rows[0] if rows else ())
        if key not in _HIDDEN_COLUMNS and key not in constant and any(row[key] not in (None, "") for row in rows)
    ]
    numbers = [key for key in filled if all(isinstance(row[key], int | float | None) for row in rows)]
    name = next((key for key in _NAME_COLUMNS if key in filled), None)

    def priority(key: str) -> int:
        if key == name or key in numbers[:MAX_NUMBERS]:
            return 0
        return 3 if key in _LEAST_USEFUL else 2 if key in numbers else 1

    most_useful = set(sorted(filled, key=priority)[:MAX_COLUMNS])
    columns = [key for key in filled if key in most_useful]
    return [_heading(key) for key in columns], [[_cell(key, row[key]) for key in columns] for row in rows]


def where(finding: Finding) -> tuple[str, str] | None:
    """Return a name to search for in the code, and its phase and shapes.

    It is None if the evidence names nothing.
    """
    for row in finding.evidence:
        name = next((str(row[key]) for key in _NAME_COLUMNS if row.get(key)), None)
        if name is not None:
            phase = f"{row['phase']} phase" if row.get("phase") else ""
            details = ", ".join(filter(None, (phase, str(row.get("shapes") or ""))))
            return fmt.clean(place(name), 80), fmt.clean(details, 120)
    return None


def _heading(key: str) -> str:
    """Return a heading without its unit, because the cells have units."""
    unit = _unit(key)
    if unit is None or unit == "share":
        return _HEADINGS.get(key) or fmt.heading(key)
    words = [word for word in key.split("_") if word != unit]
    return fmt.heading("_".join([*([] if words and words[0] != "per" else [_HEADINGS[unit]]), *words]))


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key in ("cause", "owner") and (term := (CAUSES if key == "cause" else OWNERS).get(str(value))):
        return term.label
    if isinstance(value, bool) or not isinstance(value, int | float):
        return fmt.clean(str(value))
    unit = _unit(key)
    return _BY_UNIT[unit](value) if unit is not None else fmt.count(value)


def _unit(key: str) -> str | None:
    """Return the unit in a key, such as "ms" in ``wait_ms_per_step``."""
    return next((word for word in reversed(key.split("_")) if word in _BY_UNIT), None)


def about_samples(result: RunResult) -> list[str]:
    """Return a report's lines: what samples add to a profile, or what samples alone cannot show."""
    if result.statements:
        return ["", telemetry.STATEMENTS, *(f"  {line}" for line in telemetry.statements(result))]
    if result.lead is not None or not result.telemetry.devices or not result.not_checked:
        return []
    return ["", "Not checked", *(f"  {sentence}" for sentence in why_unchecked(result.not_checked))]
