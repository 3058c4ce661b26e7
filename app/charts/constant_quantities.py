"""Sampled quantities that stay the same, as a line of text, which needs less space than a panel."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sawtooth.analysis.telemetry.series import TelemetrySeries
from sawtooth.app import format as fmt
from sawtooth.app.charts.telemetry import PANELS, columns_of
from sawtooth.ingest.quantities.registry import BY_COLUMN

MAY_BE_TEXT = ("clock", "memory", "temperature")  # Panels. A constant activity or power is itself an answer.


def constant(telemetry: TelemetrySeries, needed: Collection[str] = ()) -> list[str]:
    """Return the quantities of panels in which every line is constant.

    Panels with a quantity of ``needed`` are left out, and the clock's panel if the clock was throttled.
    """
    panels = [[column for column in columns_of(key) if telemetry.has(column)] for key in MAY_BE_TEXT]
    throttled = set(columns_of("clock")) if len(telemetry.throttles) else set()
    return [
        column
        for columns in panels
        if not {*needed, *throttled} & set(columns) and all(_is_constant(telemetry, each) for each in columns)
        for column in columns
    ]


def drawn(constants: Collection[str]) -> list[str]:
    """Return the quantities of all panels without ``constants``."""
    return [column for key in PANELS for column in columns_of(key) if column not in constants]


def in_words(telemetry: TelemetrySeries, constants: Sequence[str]) -> str:
    """Return the values of ``constants``, such as "Constant: SM clock 1,980 MHz."; "" for none."""
    values = [f"{BY_COLUMN[c].label} {_shown(float(telemetry.samples[c].dropna().iloc[0]), c)}" for c in constants]
    return f"Constant: {', '.join(values)}." if values else ""


def _is_constant(telemetry: TelemetrySeries, column: str) -> bool:
    known = telemetry.samples[column].dropna().astype(float)
    return len(known) > 0 and _shown(known.min(), column) == _shown(known.max(), column)


def _shown(value: float, column: str) -> str:
    return fmt.in_unit(value, BY_COLUMN[column].unit)
