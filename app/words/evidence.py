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
MAX_NUMBERS = 2  # This many columns of numbers come before other texts.
# Columns without cells: a link shows times better, and other columns name what the ids mean.
_PLACE = ("start_ns", "end_ns", "devices", "recording")
# These columns have names to search for in the code. The most reliable column comes first.
_NAMED_BY = ("place", "operator", "flop_operator", "module")
_MIN_USEFUL = ("cause", "owner", "phase")  # The finding's title usually contains them.
_HEADINGS = {"ms": "Time", "us": "Time", "ns": "Time", "share": "Share", "bytes": "Bytes"}


def table(finding: Finding) -> Rows:
    """Return the headings and cells of a finding's evidence; both are empty if it has none.

    Rows of another kind than the first are left out. Empty columns are left out too, and the least useful of many columns.
    """
    rows = [row for row in finding.evidence if row.keys() == finding.evidence[0].keys()]
    filled_keys = [
        key for key in (rows[0] if rows else ()) if key not in _PLACE and any(row[key] not in (None, "") for row in rows)
    ]
    constant = {key for key in _MIN_USEFUL if len(rows) > 1 and len({row.get(key) for row in rows}) == 1}
    filled_keys = [key for key in filled_keys if key not in constant]
    numbers = [key for key in filled_keys if all(isinstance(row[key], int | float | None) for row in rows)]
    name = next((key for key in _NAMED_BY if key in filled_keys), None)

    def place(key: str) -> int:
        if key == name or key in numbers[:MAX_NUMBERS]:
            return 0
        return 3 if key in _MIN_USEFUL else 2 if key in numbers else 1

    kept_keys = set(sorted(filled_keys, key=place)[:MAX_COLUMNS])
    columns = [key for key in filled_keys if key in kept_keys]
    return [_heading(key) for key in columns], [[_cell(key, row[key]) for key in columns] for row in rows]


def where(finding: Finding) -> tuple[str, str] | None:
    """Return where to look without a source line: an operator, and its phase and shapes.

    They come from the first piece of evidence that has them; None if there is none.
    """
    for row in finding.evidence:
        name = next((str(row[key]) for key in _NAMED_BY if row.get(key)), None)
        if name is not None:
            phase = f"{row['phase']} phase" if row.get("phase") else ""
            return fmt.clean(place(name), 80), fmt.clean(", ".join(filter(None, (phase, str(row.get("shapes") or "")))), 120)
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
    alone = result.lead is None and result.telemetry.devices and result.not_checked
    return ["", "Not checked", *(f"  {sentence}" for sentence in why_unchecked(result.not_checked))] if alone else []
