"""MFU as a product of four shares, and operators under the roof of their GPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app import format as fmt
from sawtooth.app.charts.base import Chart, framed
from sawtooth.app.charts.rankings import short
from sawtooth.app.theme import ACCENT, CAUSES, MUTED, OWNERS

FACTORS = ("mfu_factor_busy", "mfu_factor_flop_kernels", "mfu_factor_clock", "mfu_factor_efficiency")
LABELLED = 5  # points named on the roofline: more names than that cover each other
NUMBER_INK = "#000000"  # on the markers' blue and amber of either theme
POINTS = 400  # operators drawn, largest opportunity first; the table has them all
RAISES = {
    "mfu_factor_busy": "Remove the waits: see Idle.",
    "mfu_factor_flop_kernels": "Fuse or remove work other than products, convolutions and attention: see Kernels.",
    "mfu_factor_clock": "Power and heat throttle clocks: see Telemetry.",
    "mfu_factor_efficiency": "Use tensor cores in 16 bit with larger, aligned shapes: see below.",
}


def factors(metrics: Mapping[str, Reading], title: str, *, dark: bool) -> Chart:
    """Draw MFU and its four factors as shares; factors without a value are left out."""
    keys = [key for key in (*FACTORS, "mfu") if metrics[key].value is not None]
    values = [float(metrics[key].value or 0.0) for key in keys]
    labels = [METRICS[key].label if key != "mfu" else "= MFU" for key in keys]
    lowest = min((k for k in keys if k != "mfu"), key=lambda k: metrics[k].value or 0.0, default=None)
    colours = [
        ACCENT.on(dark) if k == "mfu" else CAUSES["data_wait"].on(dark) if k == lowest else OWNERS["other_compute"].on(dark)
        for k in keys
    ]
    figure = go.Figure(
        go.Bar(
            y=labels,
            x=values,
            orientation="h",
            marker={"color": colours, "line": {"width": 0}},
            text=[fmt.share(v) for v in values],
            textposition="outside",
            cliponaxis=False,
            customdata=[
                f"{fmt.plain(label)}: {fmt.share(v)}<br>{fmt.plain(RAISES.get(k, ''))}"
                for k, label, v in zip(keys, labels, values, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    framed(figure, 60 + 36 * max(len(keys), 1))
    figure.update_yaxes(autorange="reversed", showgrid=False, automargin=True, ticksuffix="  ")
    figure.update_xaxes(
        title={"text": "share"}, tickformat=".0%", range=[0, max(1.0, *values) * 1.1 if values else 1.1], zeroline=False
    )
    table = pd.DataFrame(
        {
            "factor": labels,
            "share": values,
            "raises": [RAISES.get(k, "") for k in keys],
            "notes": [" ".join(metrics[k].notes) for k in keys],
        }
    )
    alt = f"{title}. " + ", ".join(f"{label} {fmt.share(v)}" for label, v in zip(labels, values, strict=True)) + "."
    columns = {"factor": "Factor", "share": "Share", "raises": "What raises it", "notes": "Notes"}
    return Chart(
        figure=figure,
        title=title,
        alt=alt,
        table=table,
        columns=columns,
        metrics=("mfu", *FACTORS),
        method="The four factors multiply to MFU exactly.",
    )


def roofline(rows: pd.DataFrame, peaks: Mapping[str, float], bandwidth: float, title: str, *, dark: bool) -> Chart:
    """Draw operators by intensity and rate; ``rows`` are those of ``sawtooth.analysis.knowledge.roofline`` that multiply, ``peaks`` TFLOP/s by dtype.

    ``bandwidth`` is bytes per second.
    """
    shown = rows.head(POINTS)
    figure = go.Figure()
    low = float(min(shown["intensity"].min(), 1.0)) / 2
    high = float(max(shown["intensity"].max(), 1000.0)) * 2
    for dtype, peak in peaks.items():
        ridge = peak * 1e12 / bandwidth
        figure.add_scatter(
            x=[low, ridge, high], y=[low * bandwidth / 1e12, peak, peak], mode="lines", hoverinfo="skip",
            line={"color": MUTED.on(dark), "width": 1.2}, showlegend=False,
        )  # fmt: skip
        figure.add_annotation(
            x=np.log10(high),
            y=np.log10(peak),
            text=f"{dtype} {fmt.flop_rate(peak)}",
            showarrow=False,
            xanchor="right",
            yanchor="bottom",
            font={"size": 11},
        )
    time = shown["ms"].to_numpy(float)
    figure.add_scatter(
        x=shown["intensity"],
        y=shown["achieved_tflops"],
        mode="markers",
        showlegend=False,
        marker={
            "size": np.clip(6 + 26 * np.sqrt(time / max(time.max(), 1e-12)), 6, 32).astype(np.float32),
            "color": np.where(
                shown["bound"] == "compute", OWNERS["tensor_core_compute"].on(dark), OWNERS["exposed_memcpy"].on(dark)
            ),
            "opacity": 0.75,
            "line": {"width": 1, "color": MUTED.on(dark)},
        },
        customdata=[
            f"{fmt.plain(str(r.name_), 60)}<br>{fmt.plain(str(r.shapes), 80)}<br>{fmt.flop_rate(r.achieved_tflops)} of {fmt.flop_rate(r.attainable_tflops)} attainable"
            f"<br>{fmt.duration_ms(r.ms)} a step, {fmt.duration_ms(r.opportunity_ms)} above the roof"
            for r in shown.rename(columns={"name": "name_"}).itertuples(index=False)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    roof_at_low = low * bandwidth / 1e12
    bottom = float(np.log10(min(roof_at_low, shown["achieved_tflops"].clip(lower=1e-9).min())))
    top = float(np.log10(max(peaks.values(), default=shown["achieved_tflops"].max())))
    largest = shown.head(LABELLED).iloc[::-1].to_dict("records")
    for number, row in enumerate(
        largest
    ):  # numbered where it is, named in a column under the roof: lines would cross the names
        place = len(largest) - number
        figure.add_annotation(
            x=np.log10(row["intensity"]),
            y=np.log10(row["achieved_tflops"]),
            text=f"<b>{place}</b>",
            showarrow=False,
            font={"size": 11, "color": NUMBER_INK},
        )
        figure.add_annotation(
            x=np.log10(high) - 0.05,
            y=bottom + (number + 1) * (top - bottom) * 0.5 / LABELLED,
            text=f"<b>{place}</b> {fmt.plain(short(str(row['name']), 26))} {fmt.duration_ms(row['opportunity_ms'])}",
            showarrow=False,
            xanchor="right",
            font={"size": 11},
        )
    framed(figure, 420)
    figure.update_xaxes(type="log", dtick=1, title={"text": "FLOPs per byte"}, range=[np.log10(low), np.log10(high)])
    figure.update_yaxes(type="log", dtick=1, title={"text": "TFLOP/s"})
    alt = f"{title}. Roofline: " + "; ".join(
        f"{fmt.clean(str(r['name']), 40)} {fmt.flop_rate(r['achieved_tflops'])} of {fmt.flop_rate(r['attainable_tflops'])}"
        for r in shown.head(LABELLED).to_dict("records")
    )
    columns = {
        "name": "Operator", "shapes": "Input shapes", "dtype": "Type", "ms": "ms per step", "opportunity_ms": "Above the roof, ms per step",
        "attained_share": "Attained share", "achieved_tflops": "TFLOP/s", "attainable_tflops": "Attainable TFLOP/s", "intensity": "FLOPs per byte", "bound": "Bound by",
    }  # fmt: skip
    return Chart(
        figure=figure, title=title, alt=alt, table=rows, columns=columns, metrics=("achieved_tflops", "flops_per_step"),
        method="An operator needs at least the time of its FLOPs at its dtype's dense peak and of its bytes at the memory's bandwidth, whichever is longer. "
        "Dots are sized by their time; blue ones are bound by compute, amber ones by memory. The time above that minimum is the opportunity; no kernel quite reaches "
        "the vendor's peaks, and 70 to 80 % is good.",
    )  # fmt: skip
