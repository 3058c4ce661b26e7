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
# Columns without cells: a link shows times better, and other columns name what the ids mean.
_PLACE = ("start_ns", "end_ns", "devices", "recording")
_NAMED_BY = ("place", "operator", "flop_operator", "module")  # names to search for in the code, the most reliable first
_HEADINGS = {"ms": "Time", "share": "Share", "bytes": "Bytes"}


def table(finding: Finding) -> Rows:
    """Return the headings and cells of a finding's evidence; both are empty if it has none."""
    keys = list(dict.fromkeys(key for row in finding.evidence for key in row if key not in _PLACE))
    kept = [key for key in keys if any(row.get(key) not in (None, "") for row in finding.evidence)]
    return [_heading(key) for key in kept], [[_cell(key, row.get(key)) for key in kept] for row in finding.evidence]


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
    name, _, unit = key.rpartition("_")
    return _HEADINGS.get(key) or fmt.heading(name if name and unit in _BY_UNIT and unit != "share" else key)


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key in ("cause", "owner") and (known := (CAUSES if key == "cause" else OWNERS).get(str(value))):
        return known.label
    if isinstance(value, bool) or not isinstance(value, int | float):
        return fmt.clean(str(value))
    in_unit = _BY_UNIT.get(key.rpartition("_")[2])
    return in_unit(value) if in_unit else fmt.count(value)


def about_samples(result: RunResult) -> list[str]:
    """Return a report's lines: what samples add to a profile, or what samples alone cannot show."""
    if result.statements:
        return ["", telemetry.STATEMENTS, *(f"  {line}" for line in telemetry.statements(result))]
    alone = result.lead is None and result.telemetry.devices and result.not_checked
    return ["", "Not checked", *(f"  {sentence}" for sentence in why_unchecked(result.not_checked))] if alone else []
