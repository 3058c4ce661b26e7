"""One self-contained HTML file of a run or a comparison: it opens from disk, asks the network for nothing, and prints.

What it looks like stands in ``sawtooth/app/templates``; this module says what goes into the templates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.io
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.gate import Outcome
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.verdict import Column, columns_of, judge, parts_of
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts import step_bar, waterfall
from sawtooth.app.charts.base import CONFIG, Chart
from sawtooth.app.reports import text as report_text
from sawtooth.app.theme import colour_of
from sawtooth.app.words import comparison as words
from sawtooth.app.words import headline as headline_words
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as run_words

ROWS = 25  # of each table of kernels and operators; the JSON has them all


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; with ``words`` its cells are sentences, which wrap, else numbers, which do not."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False


@dataclass(frozen=True)
class BarPart:
    """A part of a step's bar: its label with time and share, its width as CSS, its colour."""

    label: str
    width: str
    colour: str
    hatched: bool


@dataclass(frozen=True)
class Bar:
    """A step as a bar; ``alt`` says the same in words."""

    caption: str
    alt: str
    parts: Sequence[BarPart]


@dataclass(frozen=True)
class Change:
    """A finding, what its change brings in words, and the rows that prove it."""

    finding: Finding
    gain: str
    evidence: Table


@dataclass(frozen=True)
class DrawnChart:
    """A chart in a report; ``drawing`` is Plotly's own HTML, empty in a report without scripts."""

    title: str
    alt: str
    method: str
    drawing: Markup
    table: Table


@dataclass(frozen=True)
class MatchTable:
    """The kernels or operators whose time changed most, of ``total``."""

    title: str
    table: Table
    total: int


def run_html(result: RunResult) -> str:
    """Return the report of a run: the verdict, where a step goes, what to change with code and evidence, and every reading. It holds no script."""
    verdict = judge(result.lead) if result.lead is not None else None
    return templates.render(
        "run_report.html",
        headline=headline_words.headline(result),
        state=headline_words.below(result),
        marker=Markup(report_text.MARKER),
        plotly_js=None,
        name=result.manifest.name,
        subtitle=run_words.subtitle(result),
        distortion=run_words.distortion(verdict) if verdict else None,
        step_title=run_words.step_bar_title(verdict) if verdict else None,
        bars=[_bar(result.lead, column) for column in columns_of(result.lead)] if verdict and result.lead else [],
        changes=[_change(finding, result.lead.best.ms) for finding in result.findings] if result.lead else [],
        readings=Table(("Metric", "Value", "Note"), [_reading(key, result) for key in report_text.listed(result)], words=True),
        unlisted=report_text.unlisted(result),
        host=[(title, Table(heads, rows, words=True)) for title, heads, rows in host_words.tables(result.host)]
        if result.host
        else [],
        worth_knowing=report_text.worth_knowing(result),
        not_checked_title=run_words.not_checked(len(result.not_checked)),
        not_checked=[run_words.why_not_checked(rule) for rule in result.not_checked],
    )


def _bar(rank: RankResult, column: Column) -> Bar:
    parts = []
    for part in parts_of(rank, column):
        colour = colour_of(part.owner, part.cause)
        label = f"{step_bar.label(part)} {fmt.duration_ms(part.ms)} ({fmt.share(part.share)})"
        parts.append(BarPart(label, f"{part.share:.4%}", colour.on(False), colour.hatched))
    name = step_bar.ROWS[column]
    caption = f"{name[0].upper()}{name[1:]}, {run_words.unit_of(rank)}"
    return Bar(caption, f"{caption}: {', '.join(part.label for part in parts)}", parts)


def _change(finding: Finding, step_ms: float | None) -> Change:
    rows = [{key: value for key, value in row.items() if key not in ("start_ns", "end_ns")} for row in finding.evidence]
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [["" if row.get(key) is None else _cell(row[key]) for key in keys] for row in rows]
    evidence = Table([fmt.heading(key) for key in keys], cells, words=True)
    return Change(finding, report_text.gain(finding, step_ms), evidence)


def _reading(key: str, result: RunResult) -> tuple[str, str, str]:
    reading = result.metrics[key]
    return METRICS[key].label, fmt.reading(key, reading), reading.why_missing or " ".join(reading.notes)


def comparison_html(comparison: Comparison, outcomes: Sequence[Outcome] = (), *, scripts: bool = True) -> str:
    """Return the report. ``scripts`` False leaves plotly.js out (charts then show as their tables)."""
    names = words.names(comparison)
    return templates.render(
        "comparison_report.html",
        headline=words.headline(comparison),
        marker=Markup(report_text.MARKER),
        plotly_js=Markup(get_plotlyjs()) if scripts else None,
        certainty=words.certainty(comparison),
        tested=words.tested(comparison),
        cautions=words.sentences(comparison),
        gates=[outcome.sentence for outcome in outcomes],
        charts=[_drawn(chart, number, scripts) for number, chart in enumerate(_charts(comparison))],
        metrics=Table(("Metric", f"A: {names[0]}", f"B: {names[1]}", "Change"), words.metric_rows(comparison)),
        matches=[
            _matched(rows, kind) for kind, rows in (("kernel", comparison.kernels), ("operator", comparison.operators)) if rows
        ],
        fixed=comparison.findings_fixed,
        new=comparison.findings_new,
    )


def _charts(comparison: Comparison) -> list[Chart]:
    names = words.names(comparison)
    charts = []
    steps = words.steps_divided(comparison)
    for step in steps:
        bars = words.bars(comparison, step)
        title, method = words.waterfall_title(bars, step), words.waterfall_method(step)
        charts.append(waterfall.waterfall(bars, names, title, dark=False, method=method))
    for step in steps[:1]:
        bars = words.bars(comparison, step)
        charts.append(waterfall.two_steps(bars, names, words.two_steps_title(bars, step), dark=False))
    a, b = words.steps(comparison)
    if a or b:
        charts.append(waterfall.step_dots(a, b, names, words.dots_title(a, b), dark=False))
    return charts


def _drawn(chart: Chart, number: int, scripts: bool) -> DrawnChart:
    drawing = Markup()
    if scripts:
        figure = chart.figure.update_layout(template="plotly_white", font={"color": "#1F2328"})
        drawing = Markup(
            plotly.io.to_html(
                figure, include_plotlyjs=False, full_html=False, config=CONFIG, div_id=f"chart-{number}", default_width="100%"
            )
        )
    cells = chart.table[list(chart.columns)].itertuples(index=False) if chart.columns else ()
    table = Table(list(chart.columns.values()), [[_cell(value) for value in row] for row in cells])
    return DrawnChart(chart.title, chart.alt, chart.method, drawing, table)


def _matched(rows: tuple[Match, ...], kind: str) -> MatchTable:
    cells = [
        (
            fmt.clean(row.label, 160),
            words.WAYS[row.how],
            f"{float(row.ns_a) / 1e6:.3f}",
            f"{float(row.ns_b) / 1e6:.3f}",
            f"{float(row.change_ns) / 1e6:+.3f}",
        )
        for row in rows[:ROWS]
    ]
    table = Table((kind.capitalize(), "Matched by", "A, ms", "B, ms", "Change, ms"), cells)
    return MatchTable(words.match_title(rows, kind), table, len(rows))


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
