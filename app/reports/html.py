"""One self-contained HTML file of a run or a comparison, without scripts and network requests.

The layout is in ``sawtooth/app/templates``; this module provides the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sawtooth.analysis import reading_order
from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.gate import GateOutcome
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.knowledge.owners import HOST_PARTS
from sawtooth.analysis.run.model import Finding, RankResult, RunResult
from sawtooth.analysis.run.verdict import Column, columns_of, judge, parts_of
from sawtooth.analysis.staircase import Staircase
from sawtooth.app import format as fmt
from sawtooth.app import templates
from sawtooth.app.charts import poster_bars, step_bar, waterfall
from sawtooth.app.charts.base import LegendEntry, entry_of
from sawtooth.app.reports import numbers, pictures
from sawtooth.app.reports import text as report_text
from sawtooth.app.theme import ACCENT, MUTED, colour_of
from sawtooth.app.words import advice, savings
from sawtooth.app.words import evidence as evidence_words
from sawtooth.app.words import headline as headline_words
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as run_words
from sawtooth.app.words import staircase as staircase_words
from sawtooth.app.words import telemetry as telemetry_words
from sawtooth.app.words.answer import cost_facts
from sawtooth.app.words.answer.title import first_choice
from sawtooth.app.words.comparisons import audit, basis, changes, conditions, limits, setup_changes, step_parts
from sawtooth.app.words.comparisons import comparison as words

_POSTER = templates.pieces("poster.html")
MAX_CHANGES = 3  # Changes shown in full, as on the page. The others are folded.
MAX_DOTS = 200  # StepDots per side. More would overlap.
MAX_ROWS = 25  # Rows of each table of kernels and operators. The JSON has all rows.


@dataclass(frozen=True)
class HtmlTable:
    """Headings and rows of text; with ``words``, cells are sentences, which wrap."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: bool = False


@dataclass(frozen=True)
class BarPart:
    """A part of a step's bar: its label with time and share, its width (CSS), colour and texture."""

    label: str
    width: str
    colour: str
    texture: str


@dataclass(frozen=True)
class HtmlBar:
    """A step as a bar; ``alt`` describes it in words."""

    caption: str
    alt: str
    parts: Sequence[BarPart]


@dataclass(frozen=True)
class HtmlChange:
    """A finding with its number, short action, diffs, gain, and evidence."""

    number: int
    finding: Finding
    action: str
    diffs: Sequence[tuple[str, Sequence[str]]]
    gain: str
    evidence: HtmlTable


@dataclass(frozen=True)
class StepDots:
    """Every counted step of one side as a dot, with its position on the scale (CSS)."""

    name: str
    colour: str
    places: Sequence[str]


@dataclass(frozen=True)
class MatchTable:
    """The first of ``total`` kernels or operators whose time changed."""

    title: str
    table: HtmlTable
    total: int


def run_html(result: RunResult, computed: Staircase | None = None) -> str:
    """Return the report of a run in the page's order, without scripts.

    Without ``computed``, a poster of the first change replaces the staircase.
    """
    stairs = staircase_words.of_run(result, computed) if computed is not None else None
    headline, state = headline_words.on_poster(result), advice.below(result)
    if stairs is not None:
        headline, state = pictures.run_title(result, stairs)
    rank = result.lead
    verdict = judge(rank) if rank is not None else None
    numbered = [_change(number, finding, result) for number, finding in advice.numbered(result)]
    first = [change for change in numbered if reading_order.is_advice(change.finding)][:MAX_CHANGES]
    return templates.render(
        "run_report.html",
        title=headline_words.headline(result),
        headline=headline,
        state=state,
        what_a_step_is=numbers.what_a_step_is(result),
        remarks=numbers.remarks(result),
        marker=Markup(report_text.MARKER),
        name=result.manifest.name,
        subtitle=run_words.subtitle(result),
        poster=_staircase(result, stairs) if stairs is not None else _poster(result),
        distortion=run_words.distortion(verdict) if verdict else None,
        step_title=run_words.step_bar_title(verdict, {}) if verdict else None,
        bars=_bars(rank) if verdict and rank else [],
        loss=advice.advice_on_loss(result),
        first=first,
        rest=[change for change in numbered if change not in first],
        plan_title=advice.plan_heading(result),
        plan=advice.plan_lines(result),
        readings=HtmlTable(
            ("Metric", "Value", "Note"),
            [*numbers.values(result), *((labels, fmt.MISSING, reason) for labels, reason in numbers.missing(result))],
            words=True,
        ),
        host=[(title, HtmlTable(heads, rows, words=True)) for title, heads, rows in host_words.tables(result.host)]
        if result.host
        else [],
        limiting_diagnostics=[limit.sentence for limit in report_text.limiting_diagnostics(result)],
        statements_title=telemetry_words.STATEMENTS,
        statements=telemetry_words.statements(result),
        not_checked_title=run_words.not_checked(len(result.not_checked)),
        not_checked=run_words.why_unchecked(result.not_checked),
    )


def _staircase(result: RunResult, stairs: Staircase) -> Markup:
    """Return the step now and after each change with the line of facts; for a phone, the poster."""
    facts = cost_facts.facts(result, stairs, first_choice(stairs, result), cost_facts.CostFacts())
    line = " · ".join(f"{label} {value}" for label, value in facts)
    picture = Markup('<div class="wide">{}<p class="small">{}</p></div>').format(pictures.of_run(result, stairs) or "", line)
    return picture + Markup('<div class="narrow">{}</div>').format(_poster(result) or "")


def _poster(result: RunResult) -> Markup | None:
    """Return the step now and after the headline's change; None if no step time is known."""
    change, forecast, before = headline_words.first_change(result), headline_words.forecast(result), savings.step(result)
    if before is None:
        return None
    plan = advice.plan_bar(result, forecast.after_ms if forecast is not None else None)
    bars = poster_bars.of_run(result, before.text, forecast, plan=plan)
    small = poster_bars.unlabelled(bars)
    facts = host_words.facts(result, forecast)
    if forecast is None:
        mfu_fact = run_words.mfu_fact(result.metrics)
        facts += [mfu_fact] if mfu_fact else []
        return Markup(_POSTER.step(before, None, None, bars, small, f"A step takes {before.text}.", facts))
    after, speedup = savings.after(forecast, change[0] if change else None), fmt.speedup(forecast.speedup)
    price = result.manifest.facts.price_per_gpu_hour
    facts += savings.lines(forecast, change[0] if change else None, steps=None, price_per_gpu_hour=price)
    alt = f"A step takes {before.text}, after the change {after.text}, {speedup}."
    return Markup(_POSTER.step(before, after, speedup, bars, small, alt, facts))


def _bars(rank: RankResult) -> list[HtmlBar]:
    """Return the ledger's columns as bars, the run's column first.

    A second column that looks equal is left out.
    """
    first, *other_bars = [_bar(rank, column) for column in columns_of(rank)]
    labels = [part.label for part in first.parts]
    return [first, *(bar for bar in other_bars if [part.label for part in bar.parts] != labels)]


def _bar(rank: RankResult, column: Column) -> HtmlBar:
    """Return a column of the ledger as a bar with a label for every part."""
    parts = parts_of(rank, column)
    name = step_bar.COLUMN_NAMES[column]
    caption = f"{name[0].upper()}{name[1:]}, {run_words.unit_of(rank)}"
    bar_parts, step_ms = [], sum(part.ms for part in parts)
    for part in parts:
        label = f"{step_bar.label(part)} {fmt.part_ms(step_ms, part.ms)} ({fmt.share(part.share)})"
        colour = colour_of(part.owner, part.cause)
        bar_parts.append(BarPart(label, f"{part.share:.4%}", colour.on(False), colour.texture))
    return HtmlBar(caption, f"{caption}: {', '.join(part.label for part in bar_parts)}", bar_parts)


def _change(number: int, finding: Finding, result: RunResult) -> HtmlChange:
    heads, cells = evidence_words.table(finding)
    evidence = HtmlTable(heads, cells, words=True)
    names = [change.framework for change in finding.changes]
    diffs = [
        (f"{name}, example {names[:at].count(name) + 1}" if name in names[:at] else name, advice.diff(change).splitlines())
        for at, (name, change) in enumerate(zip(names, finding.changes, strict=True))
    ]
    return HtmlChange(number, finding, headline_words.action(finding), diffs, report_text.gain(result, finding), evidence)


def comparison_html(comparison: Comparison, outcomes: Sequence[GateOutcome] = ()) -> str:
    """Return the report of a comparison in the page's order, without scripts."""
    names = words.names(comparison)
    steps = step_parts.steps_divided(comparison)
    return templates.render(
        "comparison_report.html",
        title=words.headline(comparison),
        headline=words.headline(comparison),
        marker=Markup(report_text.MARKER),
        certainty=words.certainty(comparison),
        tested=setup_changes.tested_prediction(comparison),
        conditions_title=conditions.TITLE,
        conditions=HtmlTable(conditions.COLUMNS, conditions.rows(comparison), words=True),
        conditions_rest=conditions.unchanged_conditions(comparison),
        changed=HtmlTable(setup_changes.COLUMNS, setup_changes.rows(comparison), words=True),
        unchanged=setup_changes.why_none(comparison),
        left=setup_changes.next_in_b(comparison),
        cautions=limits.sentences(comparison),
        gates=[outcome.sentence for outcome in outcomes],
        sides=names,
        ways=[_waterfall_picture(step_parts.bars(comparison, step), step, is_shown=words.shown(comparison)) for step in steps],
        dots_title=basis.dots_title(comparison),
        dots=_dots(*basis.steps(comparison)),
        audit=HtmlTable(
            (audit.TITLE, *(f"{side}: {name}" for side, name in zip("AB", names, strict=True)), "Change"),
            audit.pair_rows(comparison),
        ),
        metrics=HtmlTable(("Metric", f"A: {names[0]}", f"B: {names[1]}", "Change"), changes.metric_rows(comparison)),
        matches=[
            _match_table(changes.moved(rows, comparison), kind)
            for kind, rows in (("kernel", comparison.kernels), ("operator", comparison.operators))
            if rows
        ],
        findings=words.findings(comparison),
    )


@dataclass(frozen=True)
class WaterfallPicture:
    """The change from A's step to B's step: title, method, bars, the moves of parts, and all numbers."""

    title: str
    method: str
    steps: Sequence[poster_bars.StepBar]
    moves: Sequence[poster_bars.WaterfallStep]
    legend: Sequence[LegendEntry]
    table: HtmlTable


def _waterfall_picture(bars: list[waterfall.WaterfallBar], step: step_parts.Step, *, is_shown: bool) -> WaterfallPicture:
    rows = [(b.named, f"{b.ms_a:.3f}", f"{b.ms_b:.3f}", f"{b.change_ms:+.3f}") for b in bars]
    table = HtmlTable(("Part", "A, ms per step", "B, ms per step", "Change, ms per step"), rows)
    visible = [b for b in bars if b.ms_a or b.ms_b]
    return WaterfallPicture(
        title=step_parts.title(bars, step, shown=is_shown),
        method=step_parts.method(step, host=any(b.owner in HOST_PARTS for b in bars)),
        steps=poster_bars.both_steps(bars, dark=False),
        moves=poster_bars.moves(bars),
        legend=[entry_of(colour_of(b.owner, b.cause), dark=False)._replace(label=b.label) for b in visible],
        table=table,
    )


def _dots(a: Sequence[float], b: Sequence[float]) -> list[StepDots]:
    """Return the counted steps (ms) of A and B on one scale from 0; of very many steps, only every n-th."""
    longest_ms = max((*a, *b), default=0.0)
    sides = []
    for name, steps_ms, colour in (("A", a, MUTED), ("B", b, ACCENT)):
        if steps_ms and longest_ms:
            drawn_ms = steps_ms[:: max(1, len(steps_ms) // MAX_DOTS)]
            sides.append(StepDots(name, colour.on(False), [f"{ms / longest_ms:.2%}" for ms in drawn_ms]))
    return sides


def _match_table(rows: tuple[Match, ...], kind: str) -> MatchTable:
    cells = [
        (
            fmt.clean(row.label, 160),
            changes.MATCHED_BY[row.how],
            f"{float(row.ns_a) / 1e6:.3f}",
            f"{float(row.ns_b) / 1e6:.3f}",
            f"{float(row.change_ns) / 1e6:+.3f}",
        )
        for row in rows[:MAX_ROWS]
    ]
    table = HtmlTable((kind.capitalize(), "Matched by", "A, ms", "B, ms", "Change, ms"), cells)
    return MatchTable(changes.match_title(rows, kind), table, len(rows))
