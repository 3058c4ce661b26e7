"""MFU as what is left of the GPU's peak after each of its four factors."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, framed
from sawtooth.app.theme import ACCENT, CAUSES, OWNERS

# The clock first: it says which peak this GPU had, which may be more than the quoted one; what follows only takes from it.
FACTORS = ("mfu_factor_clock", "mfu_factor_busy", "mfu_factor_flop_kernels", "mfu_factor_efficiency")
RAISES = {
    "mfu_factor_busy": "Remove the waits: see Idle.",
    "mfu_factor_flop_kernels": "Fuse or remove work other than products, convolutions and attention: see Kernels.",
    "mfu_factor_clock": "Power and heat throttle clocks: see Telemetry.",
    "mfu_factor_efficiency": "Use tensor cores in 16 bit with larger, aligned shapes: see below.",
}
STEPS = {  # what each factor leaves, in words beside its bar
    "mfu_factor_busy": "time that the GPU works",
    "mfu_factor_flop_kernels": "of it in products and attention",
    "mfu_factor_clock": "clock",
    "mfu_factor_efficiency": "speed of these kernels",
}
PEAK, MFU = "the GPU's 16-bit peak", "MFU"


def factors(metrics: Mapping[str, Reading], title: str, *, dark: bool) -> Chart:
    """Draw what is left of the peak after each factor, and what that factor takes; factors without a value are left out, the last bar is MFU."""
    known = [key for key in FACTORS if metrics[key].value is not None]
    shares = [float(metrics[key].value or 0.0) for key in known]
    left = [1.0]
    for share in shares:
        left.append(left[-1] * share)
    lowest = min(known, key=lambda key: metrics[key].value or 0.0, default=None)
    names = [PEAK, *(f"× {STEPS[key]} {fmt.share(share)}" for key, share in zip(known, shares, strict=True))]
    bars, mfu = left, float(metrics["mfu"].value or 0.0)
    if len(known) < len(FACTORS):  # then the product is not the MFU
        bars, names = [*left, mfu], [*names, MFU]
    figure = go.Figure()
    blue, last = OWNERS["other_compute"].on(dark), len(bars) - 1
    figure.add_bar(
        y=list(range(len(bars))),
        x=bars,
        orientation="h",
        marker={"color": [ACCENT.on(dark) if i == last else blue for i in range(len(bars))], "line": {"width": 0}},
        customdata=[_hover(key, left[i]) for i, key in enumerate([None, *known])] + [""] * (len(bars) - len(left)),
        hovertemplate="%{customdata}<extra></extra>",
    )
    lost = [0.0, *(max(before - after, 0.0) for before, after in pairwise(left))]
    lost += [0.0] * (len(bars) - len(lost))
    figure.add_bar(
        y=list(range(len(bars))),
        x=lost,
        orientation="h",
        hoverinfo="skip",
        marker={
            "color": [
                CAUSES["data_wait"].on(dark) if key == lowest else "#8F8F8F" for key in [None, *known, None][: len(bars)]
            ],
            "opacity": 0.4,
            "pattern": {"shape": "/", "fillmode": "overlay", "size": 7, "solidity": 0.2},
            "line": {"width": 0},
        },
        text=[fmt.share(value) + (" = MFU" if i == last else "") for i, value in enumerate(bars)],
        textposition="outside",
        cliponaxis=False,
    )
    framed(figure, 60 + 38 * len(bars)).update_layout(barmode="stack", bargap=0.25)
    figure.update_yaxes(
        autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ", tickvals=list(range(len(names))), ticktext=names
    )
    most = max(1.0, *bars) * 1.2  # with room for the longest label on a phone
    figure.update_xaxes(title={"text": "share of the peak that is left"}, tickformat=".0%", range=[0, most], zeroline=False)
    return Chart(
        figure,
        title,
        f"{title}. What is left of the peak: "
        + ", ".join(f"{n} {fmt.share(v)}" for n, v in zip(names, bars, strict=True))
        + ".",
        _table(metrics, known, left),
        {"factor": "Factor", "share": "Share", "left": "Left of the peak", "raises": "What raises it", "notes": "Notes"},
        ("mfu", *FACTORS),
        "The four factors multiply to MFU exactly. A bar is what is left of the peak after its factor; the hatched part is what that factor takes.",
    )


def _hover(key: str | None, left: float) -> str:
    if key is None:
        return "what the maker quotes"
    return f"{fmt.plain(METRICS[key].label)}: {fmt.share(left)} is left<br>{fmt.plain(RAISES[key])}"


def _table(metrics: Mapping[str, Reading], known: list[str], left: list[float]) -> pd.DataFrame:
    rows = [
        (METRICS[key].label, float(metrics[key].value or 0.0), after, RAISES[key], " ".join(metrics[key].notes))
        for key, after in zip(known, left[1:], strict=True)
    ]
    rows.append(
        (MFU, float(metrics["mfu"].value or 0.0), float(metrics["mfu"].value or 0.0), "", " ".join(metrics["mfu"].notes))
    )
    return pd.DataFrame(rows, columns=["factor", "share", "left", "raises", "notes"])
