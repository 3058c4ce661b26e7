"""The live GPU chart as plain data that a browser draws each second.

It has numbers with a short line each, and one panel per unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.app.charts.telemetry import PANELS, Panel, columns_of
from sawtooth.app.theme import MUTED, colour_of_quantity
from sawtooth.ingest.quantities.registry import BY_COLUMN

TOP_PANEL_COLUMNS = ("gr_active_pct", "util_pct", "sm_active_pct")  # Quantities of the top panel, to which the sentence refers.
BESIDE_ACTIVITY = "sm_active_pct"  # If the top panel has GPU activity, this quantity is left out, because its line and its colour are similar.
AT_WORK = Panel("GPU at work, %", top=102.0)
FAINT = "util_pct"  # Drawn faintly behind faster signals, if there are any.
Line = tuple[NDArray[np.float64], NDArray[np.float64]]  # Seconds before now (negative), and values in the stored unit.


@dataclass(frozen=True)
class LiveNumber:
    """A number with a line of its last seconds.

    ``points`` are alternating x and y values. ``top`` is the line's full scale (None: its own maximum).
    """

    label: str
    value: str
    points: list[float | None]
    colour: str
    top: float | None = None
    note: str = ""
    device: int | None = None
    chosen: bool = False


def picture(
    lines: Mapping[str, Line],
    now: Mapping[str, str],
    window_s: float,
    *,
    dark: bool,
    period_s: float | None = None,
    gpus: Sequence[LiveNumber] = (),
    tiles: Sequence[LiveNumber] = (),
    recent_s: float = 10.0,
) -> dict[str, Any]:
    """Return the live chart: each quantity of ``lines`` once, with its present value (``now``) in words.

    x is in seconds before the newest sample. If ``period_s`` is set, one period is marked at the right end of the first panel.
    ``gpus`` are all GPUs at a glance and ``tiles`` are the numbers of this GPU, both over the last ``recent_s`` seconds.
    """
    first = [column for column in TOP_PANEL_COLUMNS if column != BESIDE_ACTIVITY or "gr_active_pct" not in lines]
    other_panels = [(panel, [c for c in columns_of(key) if c not in first]) for key, panel in PANELS.items()]
    panels = []
    for panel, columns in [(AT_WORK, first), *other_panels]:
        lines_drawn = [_line(column, lines[column], now.get(column, ""), panel, dark) for column in columns if column in lines]
        if lines_drawn:
            period = period_s if panel is AT_WORK else None
            panels.append({"heading": panel.heading, "top": panel.top, "lines": lines_drawn, "period": period})
    return {
        "panels": panels,
        "window": window_s,
        "recent": recent_s,
        "gpus": [asdict(tile) for tile in gpus],
        "now": [asdict(tile) for tile in tiles],
    }


def colour_of_line(column: str, dark: bool) -> str:
    """Return the colour of a quantity as on the other screens, or grey for the line behind the others."""
    return (MUTED if column == FAINT else colour_of_quantity(column)).on(dark)


def points_of(line: Line, divisor: float = 1.0) -> list[float | None]:
    """Return a line's points as alternating x and y, rounded to be short; y is None in a telemetry gap."""
    points = np.stack([line[0], line[1] / divisor], axis=1)
    return [float(f"{value:.4g}") if value == value else None for value in points.ravel().tolist()]


def _line(column: str, line: Line, now: str, panel: Panel, dark: bool) -> dict[str, Any]:
    return {
        "name": BY_COLUMN[column].label,
        "now": now,
        "colour": colour_of_line(column, dark),
        "faint": column == FAINT,
        "points": points_of(line, panel.divisor),
    }
