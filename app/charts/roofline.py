"""Operators below the roofline of their GPU.

Operators that multiply are drawn by rate and intensity; those that only move data by bandwidth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, with_layout
from sawtooth.app.charts.rankings import short_name
from sawtooth.app.theme import MUTED, OWNERS, PAGE

MAX_LABELLED = 5  # Numbered points: more would overlap.
MAX_POINTS = 400  # Drawn operators, largest opportunity first. The table has all of them.
AXIS_MARGIN_FACTOR = 4.0  # Factor by which the axes extend beyond the points, so that the slope and the ridge remain visible.
MAX_DECADES_WITH_MINOR_TICKS = 2.2  # Powers of ten on an axis. If there are fewer, minor ticks are labelled too, because powers of ten alone would give one or two labels.
HEIGHT_PX = 350
MAX_PX, NAMED_PX = 32, 24  # Diameters: of the longest operator's dot, and at least of a dot with a number in it.
LINE, WIDTH = 17, 480  # Pixels: the height of a number, and the approximate width of a figure.
MIN_TIME_SHARE = 0.001  # Share of the operators' time: dots of shorter operators would only hide others.
COLUMNS = {
    "name": "Operator", "shapes": "Input shapes", "dtype": "Type", "ms": "ms per step", "opportunity_ms": "Above the roof, ms per step",
    "attained_share": "Attained share", "achieved_tflops": "TFLOP/s", "attainable_tflops": "Attainable TFLOP/s", "gb_per_s": "GB/s",
    "intensity": "FLOPs per byte", "bound": "Bound by",
}  # fmt: skip
LARGEST_HEADS = ("Operator", "Takes", "Could save", "Attained")
METHOD = (
    "An operator needs at least the longer of two times: its FLOPs ÷ its dtype's dense peak, and its bytes ÷ the memory's bandwidth. "
    "On the left are operators that only move data: norms, activations, copies. Dots are sized by their time; blue ones are bound by compute, amber ones by "
    "memory. The time above this minimum is the largest possible gain; no kernel quite reaches the vendor's peaks, and 70 to 80 % is good. All inputs "
    "are counted as read from memory once. So a dot above the memory line read some bytes from the GPU's cache, or did not read all of its inputs."
)


def roofline(
    rows: pd.DataFrame,
    peaks: Mapping[str, float],
    bandwidth: float,
    title: str,
    *,
    dark: bool,
    unit: str = "ms per step",
    unused: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Chart, *tuple[go.Figure, ...]]:
    """Draw operators below the roofline: those that multiply, then those that only move data.

    ``rows`` come from ``sawtooth.analysis.knowledge.roofline``, largest opportunity first. ``peaks`` are TFLOP/s by dtype,
    and ``bandwidth`` is bytes per second. ``unused`` are higher peaks of dtypes that no operator uses.
    """
    rows = rows.assign(gb_per_s=rows["bytes"].astype(float) / rows["time_ns"].astype(float))
    drawn_rows = _drawn_operators(rows)
    drawn_rows = drawn_rows.assign(place=range(1, len(drawn_rows) + 1))
    multiplying, moving = drawn_rows[drawn_rows["flops"] > 0], drawn_rows[~(drawn_rows["flops"] > 0)]
    longest = float(drawn_rows["ms"].max())
    figures = (
        [_draw_multiplying(multiplying, peaks, unused, bandwidth, longest, dark=dark)] if len(multiplying) or peaks else []
    )
    if len(moving) or not figures:  # If no operator multiplies, there is only the roof of the memory.
        figures.append(_draw_moving(moving, bandwidth, longest, dark, unit))
    named = drawn_rows.head(MAX_LABELLED)
    alt = f"{title}. Roofline: " + "; ".join(
        f"{fmt.clean(str(row['name']), 40)} {fmt.share(row['attained_share'])} attained" for row in named.to_dict("records")
    )
    blue, amber = (OWNERS[key].on(dark) for key in ("tensor_core_compute", "exposed_memcpy"))
    legend = [LegendEntry("bound by compute", blue), LegendEntry("bound by memory", amber)]
    legend += [
        LegendEntry(
            f"1 to {len(named)}: the largest gains, in the table" if len(named) > 1 else "1: the largest gain, in the table", ""
        )
    ]
    columns = {c: heading.replace("ms per step", unit) for c, heading in COLUMNS.items() if rows[c].notna().any()}
    chart = Chart(figures[0], title, alt, rows, columns, ("achieved_tflops", "flops_per_step"), METHOD, tuple(legend))
    return chart, *figures[1:]


def largest(rows: pd.DataFrame) -> list[tuple[str, ...]]:
    """Return the table cells of the chart's numbered operators, as in ``LARGEST_HEADS``, per step."""
    return [
        (
            f"{place}  {named(row)}", fmt.duration_ms(row["ms"]),
            fmt.duration_ms(row["opportunity_ms"]), fmt.share(row["attained_share"]),
        )
        for place, row in enumerate(_drawn_operators(rows).head(MAX_LABELLED).to_dict("records"), 1)
    ]  # fmt: skip


def named(row: Mapping[Any, Any]) -> str:
    """Return an operator with its input shapes, both shortened."""
    return f"{short_name(str(row['name']), 40)} {fmt.clean(str(row['shapes']), 44)}"


def _drawn_operators(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the operators that get a dot, largest opportunity first."""
    return rows[rows["ms"] >= MIN_TIME_SHARE * rows["ms"].sum()].head(MAX_POINTS)


def _draw_moving(rows: pd.DataFrame, bandwidth: float, longest: float, dark: bool, unit: str) -> go.Figure:
    """Draw operators that only move data: bandwidth against time, below the memory's bandwidth."""
    figure, peak = with_layout(go.Figure(), HEIGHT_PX), bandwidth / 1e9
    left, right = (float(rows["ms"].min()) / 2, float(rows["ms"].max()) * 2) if len(rows) else (0.05, 2.0)
    low, high = (float(rows["gb_per_s"].min()), float(rows["gb_per_s"].max())) if len(rows) else (peak / 100, peak)
    # Data from a cache can exceed the memory's bandwidth.
    across = np.log10(left), np.log10(right)
    up = np.log10(min(low, peak / 10)) - 0.2, np.log10(max(high, peak)) + 0.4
    figure.update_xaxes(**_log_axis(f"{unit}: only moves data", *across))
    figure.update_yaxes(**_log_axis("GB/s", *up))
    _line(figure, [left, right], [peak, peak], dark)
    # The label is at the top, because dots of cached data can be next to the line.
    figure.add_annotation(
        text=f"line: memory {_rate(bandwidth)}", x=1, y=1, xref="x domain", yref="y domain", xanchor="right", yanchor="top", showarrow=False, font={"size": 11}
    )  # fmt: skip
    _dots(figure, rows, ("ms", "gb_per_s"), (across, up), longest=longest, dark=dark)
    return figure


def _draw_multiplying(
    rows: pd.DataFrame,
    peaks: Mapping[str, float],
    unused: Mapping[str, float],
    bandwidth: float,
    longest: float,
    *,
    dark: bool,
) -> go.Figure:
    """Draw operators that multiply: rate against intensity, below bandwidth and peak."""
    figure, highest = with_layout(go.Figure(), HEIGHT_PX), max(peaks.values(), default=0.0)
    ridges = [peak * 1e12 / bandwidth for peak in peaks.values()]
    intensities = [*rows["intensity"], *ridges, *(peak * 1e12 / bandwidth for peak in unused.values())] or [1.0, 1000.0]
    low, high = min(intensities) / AXIS_MARGIN_FACTOR, max(intensities) * AXIS_MARGIN_FACTOR
    floor = min([*rows["achieved_tflops"], *peaks.values()], default=1.0) / AXIS_MARGIN_FACTOR
    for (dtype, peak), ridge in zip(peaks.items(), ridges, strict=True):
        _line(figure, [low, ridge, high], [low * bandwidth / 1e12, peak, peak], dark)
        _note(figure, f"{dtype} {fmt.flop_rate(peak)}", high, peak, xanchor="right", yanchor="bottom")
        # To the left of the ridge, memory is the limit; to the right, arithmetic is.
        _line(figure, [ridge, ridge], [floor, peak], dark, dash="dot")
        if peak == highest:
            _note(figure, fmt.number(ridge), ridge, floor, xanchor="center", yanchor="top")
    if highest:  # The label is in the middle of the visible slope.
        middle = (max(low * bandwidth / 1e12, floor) * highest) ** 0.5
        _note(figure, f"memory {_rate(bandwidth)}", middle * 1e12 / bandwidth, middle, xanchor="right", yanchor="bottom")
    for dtype, peak in unused.items():
        _line(figure, [peak * 1e12 / bandwidth, high], [peak, peak], dark, dash="dash")
        _note(figure, f"{dtype} {fmt.flop_rate(peak)}, not used", high, peak, xanchor="right", yanchor="bottom")
        highest = max(highest, peak)
    across = float(np.log10(low)), float(np.log10(high))
    up = float(np.log10(floor / 2)), float(np.log10(max([highest, *rows["achieved_tflops"]])) + 0.15)
    figure.update_xaxes(**_log_axis("FLOPs per byte; left of the dotted line, memory limits", *across))
    figure.update_yaxes(**_log_axis("TFLOP/s", *up))
    _dots(figure, rows, ("intensity", "achieved_tflops"), (across, up), longest=longest, dark=dark)
    return figure


def _log_axis(title: str, low: float, high: float) -> dict[str, Any]:
    """Return a logarithmic axis from 10^``low`` to 10^``high``.

    Each power of ten has a number. If there are few powers, 2 and 5 have numbers too.
    """
    digits = (1, 2, 5) if high - low < MAX_DECADES_WITH_MINOR_TICKS else (1,)
    ticks = [digit * 10.0**power for power in range(int(np.floor(low)), int(np.ceil(high)) + 1) for digit in digits]
    visible_ticks = [tick for tick in ticks if low <= np.log10(tick) <= high]
    return {
        "type": "log",
        "title": {"text": title},
        "range": [low, high],
        "tickvals": visible_ticks,
        "ticktext": [f"{tick:,g}" for tick in visible_ticks],
    }


def _line(figure: go.Figure, x: list[float], y: list[float], dark: bool, *, dash: str = "solid") -> None:
    line = {"color": MUTED.on(dark), "width": 1.5, "dash": dash}
    figure.add_scatter(x=x, y=y, mode="lines", hoverinfo="skip", line=line, showlegend=False)


def _note(figure: go.Figure, text: str, x: float, y: float, **anchors: Any) -> None:
    """Write a note next to a line; ``x`` and ``y`` are in the axes' units."""
    figure.add_annotation(text=text, x=np.log10(x), y=np.log10(y), showarrow=False, font={"size": 11}, **anchors)


def _rate(bandwidth: float) -> str:
    return f"{fmt.number(bandwidth / 1e12)} TB/s"


def _dots(
    figure: go.Figure,
    rows: pd.DataFrame,
    columns: tuple[str, str],
    ranges: tuple[tuple[float, float], tuple[float, float]],
    *,
    longest: float,
    dark: bool,
) -> None:
    """Draw operators as dots by two ``columns`` on logarithmic axes, the first ones with numbers."""
    compute, memory = (OWNERS[key].on(dark) for key in ("tensor_core_compute", "exposed_memcpy"))
    size = np.clip(6 + (MAX_PX - 6) * np.sqrt(rows["ms"].to_numpy(float) / max(longest, 1e-12)), 6, MAX_PX)
    named = (rows["place"] <= MAX_LABELLED).to_numpy(bool)
    # The last dots are drawn on top, so that the numbered ones are not hidden.
    order = np.argsort(named, kind="stable")
    drawn = rows.iloc[order]
    figure.add_scatter(
        x=drawn[columns[0]],
        y=drawn[columns[1]],
        mode="markers",
        showlegend=False,
        marker={
            "size": np.where(named, np.maximum(size, NAMED_PX), size)[order].astype(np.float32),
            "color": [compute if bound == "compute" else memory for bound in drawn["bound"]],
            "opacity": 1.0,
            "line": {"width": 1, "color": PAGE.on(dark)},
        },
        customdata=[_hover(row) for row in drawn.to_dict("records")],
        hovertemplate="%{customdata}<extra></extra>",
    )
    numbered = rows[named]
    places = [np.log10(numbered[column].to_numpy(float)) for column in columns]
    across, up = ((at - low) / (high - low) for at, (low, high) in zip(places, ranges, strict=True))
    for place, x, y, shift in zip(numbered["place"], *places, shifts(across * WIDTH, up * HEIGHT_PX), strict=True):
        figure.add_annotation(
            text=f"<b>{place}</b>", x=x, y=y, yshift=shift, showarrow=False, font={"size": 11}, bgcolor=PAGE.on(dark), borderpad=0
        )  # fmt: skip


def shifts(across: Sequence[float], up: Sequence[float]) -> list[float]:
    """Return how far (pixels) the numbers in dots move up, so that none covers another."""
    placed: list[tuple[float, float]] = []
    moved = [0.0] * len(up)
    for index in sorted(range(len(up)), key=up.__getitem__):
        x, y = float(across[index]), float(up[index])
        while (
            below := next(
                (placed_y for placed_x, placed_y in placed if abs(placed_x - x) < LINE and abs(placed_y - y) < LINE), None
            )
        ) is not None:
            y = below + LINE
        placed.append((x, y))
        moved[index] = y - float(up[index])
    return moved


def _hover(row: dict[Any, Any]) -> str:
    if row["flops"] > 0:
        rate = f"{fmt.flop_rate(row['achieved_tflops'])} of {fmt.flop_rate(row['attainable_tflops'])} attainable"
    else:
        rate = f"{fmt.number(row['gb_per_s'])} GB/s, {fmt.share(row['attained_share'])} of the memory's bandwidth"
    name, shapes = fmt.plain(str(row["name"]), 60), fmt.plain(str(row["shapes"]), 80)
    return f"{name}<br>{shapes}<br>{rate}<br>{fmt.duration_ms(row['ms'])} per step, {fmt.duration_ms(row['opportunity_ms'])} above the roof"
