"""The model as an icicle: nested modules whose height is their GPU time, forward above backward."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, framed
from sawtooth.app.charts.waterfall import directed
from sawtooth.app.theme import ACCENT, CAUSES, MUTED, OWNERS, PAGE, UNKNOWN, ink_on, mixed

DRAWN_FROM = 0.004  # share of a step's GPU time: narrower modules would be lines without a name
BETWEEN = 0.012  # share of the picture: the gap between forward and backward
PALER = {
    False: 0.62,
    True: 0.72,
}  # mix with the page's colour on a light and on a dark page, so that both ends differ clearly
DRAWN_MOST = 300  # modules in each picture: the browser needs a second for more
HALF = 0.5  # share of A's time: a larger change has the same colour as this one
PHASES = ("forward", "backward")
ROOT = "step"


def icicle(tree: pd.DataFrame, title: str, *, dark: bool, method: str) -> Chart:
    """Draw the tree of ``sawtooth.analysis.tables.modules.modules``, coloured by tensor-core share."""
    whole = float(tree["gpu_ms"].sum())
    totals = {phase: float(tree.loc[tree["parent"].isna(), f"total_{phase}_ms"].sum()) for phase in PHASES}
    drawn = [phase for phase in PHASES if totals[phase] > 0]
    figure = go.Figure()
    top = 1.0
    for phase in drawn:
        height = totals[phase] / (sum(totals.values()) or 1.0)
        rows = tree[tree[f"total_{phase}_ms"] >= DRAWN_FROM * whole].nlargest(DRAWN_MOST, f"total_{phase}_ms")
        bottom = top - height
        figure.add_trace(_phase(rows, phase, totals[phase], (bottom + (BETWEEN if len(drawn) > 1 else 0), top), dark))
        top = bottom
    framed(figure, 460)
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"}, margin={"l": 0, "r": 0, "t": 4, "b": 0})
    largest = tree.nlargest(5, "total_gpu_ms")
    listed = ", ".join(
        f"{fmt.clean(str(n), 40)} {fmt.duration_ms(float(ms))}"
        for n, ms in zip(largest["name"], largest["total_gpu_ms"], strict=True)
    )
    legend = (
        LegendEntry("mostly on tensor cores", _colour(1.0, dark)),
        LegendEntry("half", _colour(0.5, dark)),
        LegendEntry("not", _colour(0.0, dark)),
    )
    return Chart(figure, title, f"Icicle of modules by GPU time. Largest: {listed}.", pd.DataFrame(), {}, (), method, legend)


def difference(rows: pd.DataFrame, title: str, *, dark: bool) -> Chart:
    """Draw A's module tree with widths of A's times, coloured by B's change.

    ``rows`` are those of ``module_changes``.
    """
    placed = rows[rows["module"].notna() | (rows["parent"].isna() & (rows["ms_a"] > 0))]
    whole = float(placed.loc[placed["parent"].isna(), "ms_a"].sum())
    placed = placed[placed["ms_a"] >= DRAWN_FROM * whole].nlargest(DRAWN_MOST, "ms_a")
    known = {_key(module) for module in placed["module"]}
    placed = placed[[pd.isna(parent) or _key(parent) in known for parent in placed["parent"]]]
    changes = [float(b - a) for a, b in zip(placed["ms_a"], placed["ms_b"], strict=True)]
    shares = [change / float(a) for change, a in zip(changes, placed["ms_a"], strict=True)]
    colours = [MUTED.on(dark), *(_changed(share, dark) for share in shares)]
    named = zip(placed["name"], changes, strict=True)
    hover = [
        f"{fmt.plain(path, 200)}<br>{fmt.duration_ms(a)} → {fmt.duration_ms(b)} a step"
        for path, a, b in zip(placed["path"], placed["ms_a"], placed["ms_b"], strict=True)
    ]
    figure = go.Figure(
        go.Icicle(
            ids=[ROOT, *(_key(module) for module in placed["module"])],
            parents=["", *(ROOT if pd.isna(parent) else _key(parent) for parent in placed["parent"])],
            labels=[
                f"A's step: {fmt.duration_ms(whole)} of GPU work",
                *(f"{fmt.plain(str(n), 40)} {directed(ms)}" for n, ms in named),
            ],
            values=[whole, *(float(ms) for ms in placed["ms_a"])],
            branchvalues="total",
            marker={"colors": colours, "line": {"width": 1}},
            textfont={"color": [ink_on(colour) for colour in colours]},
            customdata=["", *hover],
            hovertemplate="%{customdata}<extra></extra>",
            leaf={"opacity": 1.0},  # the text's colour is chosen for the mark's full colour
            tiling={"orientation": "v"},
            sort=False,
            pathbar={"visible": False},
        )
    )
    framed(figure, 320)
    figure.update_layout(uniformtext={"minsize": 10, "mode": "hide"}, margin={"l": 0, "r": 0, "t": 4, "b": 0})
    legend = (
        LegendEntry("half the time in B, or less", _changed(-HALF, dark)),
        LegendEntry("the same", _changed(0.0, dark)),
        LegendEntry("half as much again, or more", _changed(HALF, dark)),
    )
    table = rows.assign(change_ms=rows["ms_b"] - rows["ms_a"]).sort_values("own_change_ms", key=abs, ascending=False)
    columns = {
        "path": "Module",
        "ms_a": "A, ms per step",
        "ms_b": "B, ms per step",
        "change_ms": "Change, ms",
        "own_change_ms": "Change, itself, ms",
    }
    method = "Modules are matched by the names from the top of the model. A module is as wide as its GPU time in A, with the modules inside; what only B has is in the table."
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
    return f"{name} changed most: {fmt.signed(fmt.duration_ms(change), change)} a step on the GPU"


def _changed(share: float, dark: bool) -> str:
    """Return the colour of a change from A: blue for less, grey for none, warm for more; full at HALF."""
    end = ACCENT.on(dark) if share < 0 else CAUSES["data_wait"].on(dark)
    return mixed(UNKNOWN.on(dark), end, min(abs(share) / HALF, 1.0))


def _phase(rows: pd.DataFrame, phase: str, total: float, place: tuple[float, float], dark: bool) -> go.Icicle:
    known = {_key(row["module"]) for row in rows.to_dict("records")}
    ids, parents, labels, values, colours, hover = (
        [ROOT],
        [""],
        [f"{phase} {fmt.duration_ms(total)}"],
        [total],
        [mixed(PAGE.on(dark), MUTED.on(dark), 0.15)],
        [""],
    )
    for row in rows.to_dict("records"):
        parent = _key(row["parent"]) if pd.notna(row["parent"]) else ROOT
        if parent != ROOT and parent not in known:
            continue  # inside a module that is too small to be drawn
        share = row["total_tensor_core_share"]
        share = float(share) if pd.notna(share) else 0.0
        ms = float(row[f"total_{phase}_ms"])
        ids.append(_key(row["module"]))
        parents.append(parent)
        labels.append(f"{fmt.plain(str(row['name']), 40)} {fmt.duration_ms(ms)}")
        values.append(ms)
        colours.append(_colour(share, dark))
        hover.append(
            f"{fmt.plain(str(row['path']), 200)}<br>{phase} {fmt.duration_ms(ms)} a step, {fmt.share(share)} on tensor cores"
        )
    return go.Icicle(
        ids=ids,
        parents=parents,
        labels=labels,
        values=values,
        branchvalues="total",
        marker={"colors": colours, "line": {"width": 1, "color": MUTED.on(dark)}},
        textfont={"color": [ink_on(colour) for colour in colours]},
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        leaf={"opacity": 1.0},  # the text's colour is chosen for the mark's full colour
        tiling={"orientation": "h"},  # horizontal boxes, because upright ones have no room for a name
        domain={"y": list(place)},
        sort=False,
        pathbar={"visible": False},
    )


def _key(module: object) -> str:
    return "outside" if pd.isna(module) else f"m{int(module)}"  # type: ignore[call-overload]  # isna does not narrow the type


def _colour(share: float, dark: bool) -> str:
    """Return the colour for a tensor-core share from 0 to 1."""
    none, all_ = (OWNERS[key].on(dark) for key in ("other_compute", "tensor_core_compute"))
    return mixed(mixed(none, PAGE.on(dark), PALER[dark]), all_, min(max(share, 0.0), 1.0))
