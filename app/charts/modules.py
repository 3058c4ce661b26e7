"""What changed in a model: nested modules whose width is their GPU time."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, with_layout
from sawtooth.app.charts.waterfall import change_with_arrow
from sawtooth.app.theme import ACCENT, CAUSES, MUTED, UNKNOWN, ink_on, mix

MIN_DRAWN_SHARE = 0.004  # Share of a step's GPU time: narrower modules would be lines without a name.
MAX_MODULES = 300  # Modules in each picture: the browser needs a second for more.
FULL_COLOUR_CHANGE = 0.5  # Share of A's time. All changes of at least this size have the same colour.
ROOT = "step"


def difference(rows: pd.DataFrame, title: str, *, dark: bool) -> Chart:
    """Draw A's module tree with widths of A's times, coloured by B's change.

    ``rows`` come from ``module_changes``.
    """
    placed = rows[rows["module"].notna() | (rows["parent"].isna() & (rows["ms_a"] > 0))]
    total_ms = float(placed.loc[placed["parent"].isna(), "ms_a"].sum())
    placed = placed[placed["ms_a"] >= MIN_DRAWN_SHARE * total_ms].nlargest(MAX_MODULES, "ms_a")
    placed_keys = {_key(module) for module in placed["module"]}
    placed = placed[[pd.isna(parent) or _key(parent) in placed_keys for parent in placed["parent"]]]
    changes = [float(b - a) for a, b in zip(placed["ms_a"], placed["ms_b"], strict=True)]
    shares = [change / float(a) for change, a in zip(changes, placed["ms_a"], strict=True)]
    colours = [MUTED.on(dark), *(_change_colour(share, dark) for share in shares)]
    named = zip(placed["name"], changes, strict=True)
    hover = [
        f"{fmt.plain(path, 200)}<br>{fmt.duration_ms(a)} → {fmt.duration_ms(b)} per step"
        for path, a, b in zip(placed["path"], placed["ms_a"], placed["ms_b"], strict=True)
    ]
    figure = go.Figure(
        go.Icicle(
            ids=[ROOT, *(_key(module) for module in placed["module"])],
            parents=["", *(ROOT if pd.isna(parent) else _key(parent) for parent in placed["parent"])],
            labels=[
                f"A's step: {fmt.duration_ms(total_ms)} of GPU work",
                *(f"{fmt.plain(str(n), 40)} {change_with_arrow(ms)}" for n, ms in named),
            ],
            values=[total_ms, *(float(ms) for ms in placed["ms_a"])],
            branchvalues="total",
            marker={"colors": colours, "line": {"width": 1}},
            textfont={"color": [ink_on(colour) for colour in colours]},
            customdata=["", *hover],
            hovertemplate="%{customdata}<extra></extra>",
            leaf={"opacity": 1.0},  # Because the text's colour is chosen for the opaque colour of the tile.
            tiling={"orientation": "v"},
            sort=False,
            pathbar={"visible": False},
        )
    )
    with_layout(figure, 320)
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"}, margin={"l": 0, "r": 0, "t": 4, "b": 0})
    legend = (
        LegendEntry("half the time in B, or less", _change_colour(-FULL_COLOUR_CHANGE, dark)),
        LegendEntry("the same", _change_colour(0.0, dark)),
        LegendEntry("1.5 × the time in B, or more", _change_colour(FULL_COLOUR_CHANGE, dark)),
    )
    table = rows.assign(change_ms=rows["ms_b"] - rows["ms_a"]).sort_values("own_change_ms", key=abs, ascending=False)
    columns = {
        "path": "Module",
        "ms_a": "A, ms per step",
        "ms_b": "B, ms per step",
        "change_ms": "Change, ms",
        "own_change_ms": "Own change, ms",
    }
    method = "Modules are matched by the names from the top of the model. A module's width is its GPU time in A, including the modules inside it. Modules that only B has are in the table."
    return Chart(figure, title, f"{title}.", table, columns, (), method, legend)


def difference_title(rows: pd.DataFrame) -> str:
    """Return the finding of the difference: the module whose own time changed most."""
    first = rows.loc[rows["own_change_ms"].abs().idxmax()]
    change = float(first["own_change_ms"])
    if not change:
        return "No module changed its GPU time"
    name = (
        "GPU work outside modules"
        if pd.isna(first["module"]) and first["ms_a"]
        else f"{fmt.clean(str(first['name']), 60)} itself"
    )
    return f"{name} changed most: {fmt.signed(fmt.duration_ms(change), change)} per step on the GPU"


def _change_colour(share: float, dark: bool) -> str:
    """Return the colour of a change: blue for less, warm for more, full at FULL_COLOUR_CHANGE."""
    end = ACCENT.on(dark) if share < 0 else CAUSES["data_wait"].on(dark)
    return mix(UNKNOWN.on(dark), end, min(abs(share) / FULL_COLOUR_CHANGE, 1.0))


def _key(module: object) -> str:
    return "outside" if pd.isna(module) else f"m{int(module)}"  # type: ignore[call-overload]  # isna does not narrow the type
