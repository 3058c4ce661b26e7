"""One self-contained HTML file of a comparison: it opens from disk, asks the network for nothing, and prints."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.io
from plotly.offline import get_plotlyjs

from analysis.compare import Comparison
from analysis.gate import Outcome
from app import compare_words as words
from app import format as fmt
from app.charts import waterfall
from app.charts.base import CONFIG, Chart
from app.report_text import MARKER

ROWS = 25  # of each table of kernels and operators; the JSON has them all
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #1F2328; background: #fff; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; overflow-wrap: anywhere; }
.caution { border-left: 4px solid #B7791F; padding: .2rem .8rem; margin: .6rem 0; }
.small { color: #5F6670; font-size: .875rem; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid #E3E5E8; vertical-align: top; }
td:not(:first-child) { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
details { margin: .4rem 0; } summary { cursor: pointer; color: #5F6670; font-size: .875rem; }
@media print { body { max-width: none; margin: 0; } h2, .chart { break-after: avoid; break-inside: avoid; } tr { break-inside: avoid; }
  .modebar { display: none !important; } }
"""


def comparison_html(comparison: Comparison, outcomes: Sequence[Outcome] = (), *, scripts: bool = True) -> str:
    """Return the report. ``scripts`` False leaves plotly.js out (charts then show as their tables)."""
    names = words.names(comparison)
    parts = [f"<h1>{_escaped(words.headline(comparison))}</h1>", f"<p>{_escaped(words.certainty(comparison))}</p>"]
    parts += [f'<p class="caution">{_escaped(sentence)}</p>' for sentence in words.sentences(comparison)]
    parts += [f"<p>{_escaped(outcome.sentence)}</p>" for outcome in outcomes]
    parts += [_chart(chart, number, scripts) for number, chart in enumerate(_charts(comparison))]
    heads = ("Metric", f"A: {names[0]}", f"B: {names[1]}", "Change")
    parts += ["<h2>Side by side</h2>", _table(heads, words.metric_rows(comparison))]
    for kind, rows in (("kernel", comparison.kernels), ("operator", comparison.operators)):
        if rows:
            columns = (kind.capitalize(), "Matched by", "A, ms", "B, ms", "Change, ms")
            cells = [
                (
                    fmt.clean(r.label, 160),
                    words.WAYS[r.how],
                    f"{float(r.ns_a) / 1e6:.3f}",
                    f"{float(r.ns_b) / 1e6:.3f}",
                    f"{float(r.change_ns) / 1e6:+.3f}",
                )
                for r in rows[:ROWS]
            ]
            parts += [f"<h2>{_escaped(words.match_title(rows, kind))}</h2>", _table(columns, cells)]
            if len(rows) > ROWS:
                parts.append(f'<p class="small">{ROWS} of {len(rows)} rows; <code>--format json</code> has them all.</p>')
    for heading, found in (("Fixed", comparison.findings_fixed), ("New", comparison.findings_new)):
        if found:
            parts += [f"<h2>{heading}</h2>", "<ul>", *(f"<li>{_escaped(finding.title)}</li>" for finding in found), "</ul>"]
    return _page(words.headline(comparison), "\n".join(parts), scripts)


def _charts(comparison: Comparison) -> list[Chart]:
    names = words.names(comparison)
    charts = []
    if comparison.waterfall:
        for unprofiled in (True, False) if words.has_estimate(comparison) and comparison.disagreement else (False,):
            bars = words.bars(comparison, unprofiled=unprofiled)
            title, method = words.waterfall_title(bars, unprofiled=unprofiled), words.waterfall_method(unprofiled=unprofiled)
            charts.append(waterfall.waterfall(bars, names, title, dark=False, method=method))
        charts.append(
            waterfall.two_steps(
                words.bars(comparison), names, words.two_steps_title(words.bars(comparison), unprofiled=False), dark=False
            )
        )
    a, b = words.steps(comparison)
    if a or b:
        charts.append(waterfall.step_dots(a, b, names, words.dots_title(a, b), dark=False))
    return charts


def _chart(chart: Chart, number: int, scripts: bool) -> str:
    drawn = ""
    if scripts:
        figure = chart.figure.update_layout(template="plotly_white", font={"color": "#1F2328"})
        drawn = plotly.io.to_html(
            figure, include_plotlyjs=False, full_html=False, config=CONFIG, div_id=f"chart-{number}", default_width="100%"
        )
    rows = (
        [[_cell(v) for v in row] for row in chart.table[list(chart.columns)].itertuples(index=False)] if chart.columns else []
    )
    table = f"<details><summary>Table</summary>{_table(list(chart.columns.values()), rows)}</details>" if rows else ""
    method = f'<p class="small">{_escaped(chart.method)}</p>' if chart.method else ""
    return f'<h2>{_escaped(chart.title)}</h2><div class="chart" role="img" aria-label="{_escaped(chart.alt)}">{drawn}</div>{method}{table}'


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_escaped(cell)}</th>' for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(text: str) -> str:
    return html.escape(fmt.clean(text), quote=True)


def _page(title: str, body: str, scripts: bool) -> str:
    script = f"<script>{get_plotlyjs()}</script>" if scripts else ""
    # The policy makes the promise checkable: a browser refuses any request this file could make.
    policy = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' blob:; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_escaped(title)}</title><style>{_STYLE}</style>{script}</head>\n'
        f"<body>\n{MARKER}\n{body}\n</body></html>\n"
    )
