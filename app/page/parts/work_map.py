"""The treemap beside the table of Work: which tiles a grouping has, and which row a tile belongs to."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from sawtooth.analysis.findings.gpu_work import GpuWork, Grouping, own_time_by_two_groupings
from sawtooth.app.charts import rankings, treemap
from sawtooth.app.charts.base import CONFIG, Chart
from sawtooth.app.charts.treemap import Tile
from sawtooth.app.words import categories

# The table's rows are tiles, with a frame around the tiles of each of these groups.
FRAMES: Mapping[Grouping, Grouping] = {"kernel": "category"}
# The table's rows are frames, with a tile for each of these parts.
INSIDE: Mapping[Grouping, Grouping] = {"category": "kernel", "phase": "category"}


def show(chart: Chart, by: Grouping) -> str | None:
    """Show the treemap of a grouping; return the key of the row whose tile was clicked."""
    state = st.plotly_chart(
        chart.figure, key=f"work-map-{by}", config=CONFIG, alt=chart.alt, on_select="rerun", selection_mode="points"
    )
    points = state.selection.points if state is not None else []
    return row_of(by, str(points[0].get("id", ""))) if points else None


def key_of(by: Grouping, row: Mapping[str, object]) -> str:
    """Return the key of a row of a grouping, which the address and the tiles use."""
    return f"{row['operator']} {row['shapes']}".strip() if by == "shape" else str(row["name"])


def row_of(by: Grouping, tile_id: str) -> str:
    """Return the key of the row that a tile belongs to."""
    names = treemap.names_of(tile_id)
    if by == "module":
        return " / ".join(names)
    return names[-1] if by in FRAMES else names[0]


def tiles(work: GpuWork, by: Grouping, rows: pd.DataFrame) -> list[Tile]:
    """Return the tiles of a grouping; modules are inside the modules that call them."""
    if by == "module":
        return _tree(rows)
    if by in FRAMES:
        short = rankings.distinct_names(rows["name"].astype(str).tolist(), treemap.MAX_LABEL_CHARACTERS)
        inner = [
            Tile((str(row["category"]), str(row["name"])), label, float(row["ms"]), str(row["owner"]))
            for row, label in zip(rows.to_dict("records"), short, strict=True)
        ]
        frames = dict.fromkeys(tile.path[0] for tile in inner)
        return [*(Tile((name,), categories.in_words(name), 0.0) for name in frames), *inner]
    if by not in INSIDE:
        return [
            Tile((key_of(by, row),), key_of(by, row), float(row["ms"]), str(row["owner"])) for row in rows.to_dict("records")
        ]
    kind = INSIDE[by]
    parts = own_time_by_two_groupings(work, by, kind)
    names = parts[kind].astype(str).tolist()
    labels = (
        list(map(categories.in_words, names))
        if kind == "category"
        else rankings.distinct_names(names, treemap.MAX_LABEL_CHARACTERS)
    )
    group_tiles = [
        Tile((name,), categories.in_words(name) if by == "category" else name, 0.0) for name in rows["name"].astype(str)
    ]
    return group_tiles + [
        Tile((str(row[by]), str(row[kind])), label, float(row["ms"]), str(row["owner"]))
        for row, label in zip(parts.to_dict("records"), labels, strict=True)
        if row["ms"]
    ]


def _tree(rows: pd.DataFrame) -> list[Tile]:
    row_by_path = {tuple(str(row["name"]).split(" / ")): row for row in rows.to_dict("records")}
    paths = dict.fromkeys(path[:depth] for path in row_by_path for depth in range(1, len(path) + 1))
    return [
        Tile(path, path[-1], float(row_by_path[path]["ms"]), str(row_by_path[path]["owner"]))
        if path in row_by_path
        else Tile(path, path[-1], 0.0)
        for path in paths
    ]
