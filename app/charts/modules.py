"""The model as an icicle: modules inside modules, as wide as their GPU time, forward and backward beside each other."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, LegendEntry, framed
from sawtooth.app.theme import MUTED, OWNERS, ink_on

DRAWN_FROM = 0.004  # of a step's GPU time: narrower modules are lines without a name
DRAWN_MOST = 300  # modules of either picture: more take the browser a second
PHASES = ("forward", "backward")
ROOT = "step"


def icicle(tree: pd.DataFrame, title: str, *, dark: bool, method: str) -> Chart:
    """Draw the tree of ``sawtooth.analysis.tables.modules.modules``, its colour the share of time on tensor cores."""
    whole = float(tree["gpu_ms"].sum())
    totals = {phase: float(tree.loc[tree["parent"].isna(), f"total_{phase}_ms"].sum()) for phase in PHASES}
    drawn = [phase for phase in PHASES if totals[phase] > 0]
    figure = go.Figure()
    left = 0.0
    for phase in drawn:
        width = totals[phase] / (sum(totals.values()) or 1.0)
        rows = tree[tree[f"total_{phase}_ms"] >= DRAWN_FROM * whole].nlargest(DRAWN_MOST, f"total_{phase}_ms")
        figure.add_trace(_phase(rows, phase, totals[phase], (left, left + width - (0.004 if len(drawn) > 1 else 0)), dark))
        left += width
    framed(figure, 360)
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


def _phase(rows: pd.DataFrame, phase: str, total: float, place: tuple[float, float], dark: bool) -> go.Icicle:
    known = {_key(row["module"]) for row in rows.to_dict("records")}
    ids, parents, labels, values, colours, hover = (
        [ROOT],
        [""],
        [f"{phase} {fmt.duration_ms(total)}"],
        [total],
        [MUTED.on(dark)],
        [""],
    )
    for row in rows.to_dict("records"):
        parent = _key(row["parent"]) if pd.notna(row["parent"]) else ROOT
        if parent != ROOT and parent not in known:
            continue  # inside a module too small to be drawn
        share = row["total_tensor_core_share"]
        share = float(share) if pd.notna(share) else 0.0
        ms = float(row[f"total_{phase}_ms"])
        ids.append(_key(row["module"]))
        parents.append(parent)
        labels.append(fmt.plain(str(row["name"]), 40))
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
        marker={"colors": colours, "line": {"width": 1}},
        textfont={"color": [ink_on(colour) for colour in colours]},
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
        tiling={"orientation": "v"},
        domain={"x": list(place)},
        sort=False,
        pathbar={"visible": False},
    )


def _key(module: object) -> str:
    return "outside" if pd.isna(module) else f"m{int(module)}"  # type: ignore[call-overload]


def _colour(share: float, dark: bool) -> str:
    """Return the colour between work without tensor cores and work on them."""
    ends = [OWNERS[key].on(dark) for key in ("other_compute", "tensor_core_compute")]
    none, all_ = ([int(end[i : i + 2], 16) for i in (1, 3, 5)] for end in ends)
    mixed = [round(a + (b - a) * min(max(share, 0.0), 1.0)) for a, b in zip(_paler(none, dark), all_, strict=True)]
    return "#" + "".join(f"{value:02X}" for value in mixed)


def _paler(colour: list[int], dark: bool) -> list[int]:
    """Return a colour nearer to the page: the two ends must be told apart at a glance."""
    page = 0x14 if dark else 0xFF
    return [round(value + (page - value) * 0.45) for value in colour]
