"""One self-contained HTML file of a run or a comparison: it opens from disk, asks the network for nothing, and prints."""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.io
from plotly.offline import get_plotlyjs

from analysis.compare import Comparison
from analysis.gate import Outcome
from analysis.judgement import columns_of, judge, parts_of
from analysis.metrics import METRICS
from analysis.run_result import Finding, RankResult, RunResult
from app import compare_words as words
from app import format as fmt
from app import report_text
from app import words as run_words
from app.charts import step_bar, waterfall
from app.charts.base import CONFIG, Chart
from app.report_text import MARKER
from app.theme import colour_of

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
h3 { font-size: 1rem; margin: 1.4rem 0 .2rem; overflow-wrap: anywhere; }
td:not(:first-child) { white-space: nowrap; }
.words th, .words td, .words td:not(:first-child) { text-align: left; white-space: normal; overflow-wrap: anywhere; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
.bar { display: flex; height: 2.2rem; border-radius: 4px; overflow: hidden; margin: .4rem 0; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.legend span { display: inline-block; margin-right: 1rem; } .legend i { display: inline-block; width: .75rem; height: .75rem; border-radius: 2px; margin-right: .35rem; }
.hatched { background-image: repeating-linear-gradient(45deg, transparent 0 2px, rgb(255 255 255 / 60%) 2px 4px); }
pre { background: #F6F7F8; padding: .6rem .8rem; border-radius: 4px; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8125rem; }
details { margin: .4rem 0; } summary { cursor: pointer; color: #5F6670; font-size: .875rem; }
@media print { body { max-width: none; margin: 0; } h2, .chart { break-after: avoid; break-inside: avoid; } tr { break-inside: avoid; }
  .modebar { display: none !important; } }
"""


def run_html(result: RunResult) -> str:
    """Return the report of a run: the verdict, where a step goes, what to change with code and evidence, and every reading. It holds no script."""
    headline = run_words.first_line(result)
    parts = [f"<h1>{_escaped(headline)}</h1>"]
    parts.append(f'<p class="small">{_escaped(result.manifest.name)} · {_escaped(run_words.subtitle(result))}</p>')
    if result.lead is not None:
        parts += _step(result.lead)
        parts += _changes(result, result.lead)
    rows = [(METRICS[key].label, *_reading(key, result)) for key in METRICS]
    parts += ["<h2>Readings</h2>", _table(("Metric", "Value", "Note"), rows, words=True)]
    if told := report_text.worth_knowing(result):
        parts += ["<h2>Worth knowing</h2>", _list(told)]
    if result.not_checked:
        lines = [f"{rule.rule}: not checked, because {rule.because}" for rule in result.not_checked]
        parts.append(f"<details><summary>{run_words.not_checked(len(lines))}</summary>{_list(lines)}</details>")
    return _page(headline, "\n".join(parts), scripts=False)


def _step(rank: RankResult) -> list[str]:
    """Draw where a step goes, as recorded and without the profiler."""
    verdict = judge(rank)
    if verdict is None:
        return []
    sentence = run_words.distortion(verdict)
    drawn = [f'<p class="caution">{_escaped(sentence)}</p>'] if sentence else []
    drawn.append(f"<h2>{_escaped(run_words.step_bar_title(verdict))}</h2>")
    for column in columns_of(rank):
        parts = parts_of(rank, column)
        pieces, legend = "", ""
        for part in parts:
            colour, words_of = (
                colour_of(part.owner, part.cause),
                f"{step_bar.label(part)} {fmt.duration_ms(part.ms)} ({fmt.share(part.share)})",
            )
            look = f'class="{"hatched" if colour.hatched else ""}" style="background-color:{colour.on(False)}'
            pieces += f'<div {look};width:{part.share:.4%}" title="{_escaped(words_of)}"></div>'
            legend += f'<span><i {look}"></i>{_escaped(words_of)}</span>'
        name = step_bar.ROWS[column]
        drawn.append(
            f'<p class="small">{name[0].upper()}{name[1:]}, {run_words.unit_of(rank)}</p><div class="bar" role="img">{pieces}</div>'
        )
        drawn.append(f'<p class="small legend">{legend}</p>')
    return drawn


def _changes(result: RunResult, rank: RankResult) -> list[str]:
    if not result.findings:
        return []
    parts = ["<h2>What to change</h2>"]
    for number, finding in enumerate(result.findings, start=1):
        gain = report_text.gain(finding, rank.best.ms)
        parts.append(f"<h3>{number}&ensp;{_escaped(finding.title)}</h3>")
        parts.append(
            f"<p>{_escaped(finding.fix)}<br><strong>{_escaped(gain)}</strong>, {finding.severity}, {finding.confidence} confidence</p>"
        )
        parts.append(_code_and_evidence(finding))
        parts += [f'<p class="small">{_escaped(note)}</p>' for note in (finding.prediction_note, finding.risk) if note]
    return parts


def _code_and_evidence(finding: Finding) -> str:
    code = "".join(
        f"<p>{_escaped(change.framework)}, before</p><pre>{_code(change.before)}</pre><p>after</p><pre>{_code(change.after)}</pre>"
        for change in finding.changes
    )
    shown = [{key: value for key, value in row.items() if key not in ("start_ns", "end_ns")} for row in finding.evidence]
    heads = list(dict.fromkeys(key for row in shown for key in row))
    rows = [[_cell("" if row.get(head) is None else row[head]) for head in heads] for row in shown]
    evidence = _table([head.replace("_", " ") for head in heads], rows, words=True) if heads else ""
    parts = (("Code", code), ("Evidence", evidence))
    return "".join(f"<details><summary>{title}</summary>{body}</details>" for title, body in parts if body)


def _reading(key: str, result: RunResult) -> tuple[str, str]:
    reading = result.metrics[key]
    return fmt.reading(key, reading), reading.why_missing or " ".join(reading.notes)


def _list(sentences: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_escaped(sentence)}</li>" for sentence in sentences) + "</ul>"


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


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, words: bool = False) -> str:
    """Return a table; with ``words`` its cells are sentences, which wrap, else numbers, which do not."""
    head = "".join(f'<th scope="col">{_escaped(cell)}</th>' for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table{' class=words' if words else ''}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _code(text: str) -> str:
    return html.escape(text, quote=True)  # our own: its line breaks stay


def _escaped(text: str) -> str:
    return html.escape(fmt.clean(text), quote=True)


def _page(title: str, body: str, scripts: bool) -> str:
    script = f"<script>{get_plotlyjs()}</script>" if scripts else ""
    # The policy makes the promise checkable: a browser refuses any request this file could make.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    if scripts:
        policy += "; script-src 'unsafe-inline' 'unsafe-eval' blob:; img-src data: blob:; font-src data:"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{_escaped(title)}</title><style>{_STYLE}</style>{script}</head>\n'
        f"<body>\n{MARKER}\n{body}\n</body></html>\n"
    )
