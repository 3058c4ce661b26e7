"""Reports of a comparison: Markdown for pull requests, text for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.gate import GateOutcome
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.knowledge.owners import HOST_LOADING, LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.app import format as fmt
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.printable import aligned
from sawtooth.app.reports.escaped import as_written as _plain
from sawtooth.app.reports.escaped import for_terminals, table
from sawtooth.app.reports.text import BAR_CHARACTERS, LOST, MARKER, MAX_TABLE_ROWS, WORK
from sawtooth.app.words.comparisons import audit, changes, conditions, limits, setup_changes, step_parts
from sawtooth.app.words.comparisons import comparison as words


def markdown(comparison: Comparison, outcomes: Sequence[GateOutcome] = ()) -> str:
    """Return the comparison as GitHub-flavoured Markdown.

    A bot finds its earlier comment by the marker.
    """
    lines = [
        MARKER,
        f"## {_plain(words.headline(comparison))}",
        "",
        _plain(words.certainty(comparison)),
        "",
    ]
    lines += [f"{_plain(tested)}\n"] if (tested := setup_changes.tested_prediction(comparison)) else []
    lines += _blocks(comparison)
    if differing := conditions.rows(comparison):
        lines += [*table((conditions.TITLE, "A", "B"), differing, words=3), ""]
    lines += [f"{_plain(unchanged)}\n"] if (unchanged := conditions.unchanged_conditions(comparison)) else []
    if changed := setup_changes.rows(comparison):
        lines += [*table(setup_changes.COLUMNS, changed, words=len(setup_changes.COLUMNS)), ""]
    lines += [f"{_plain(line)}\n" for line in (setup_changes.why_none(comparison), setup_changes.next_in_b(comparison)) if line]
    lines += [f"> {_plain(sentence)}\n" for sentence in limits.sentences(comparison)]
    lines += [f"- {_plain(outcome.sentence)}" for outcome in outcomes]
    a, b = (fmt.clean(name, 40) for name in words.names(comparison))
    for heading, rows in ((audit.TITLE.lower(), audit.pair_rows(comparison)), ("metric", changes.metric_rows(comparison))):
        if rows:
            lines += ["", *table((heading, f"A: {a}", f"B: {b}", "change"), rows)]
    for step in step_parts.steps_divided(comparison):
        parts = step_parts.bars(comparison, step)
        lines += ["", f"{step_parts.title(parts, step, shown=words.shown(comparison))}.", ""]
        heads = (_PART_HEADINGS[step], "A, ms", "B, ms", "change, ms")
        lines += table(
            heads, [(part.named, f"{part.ms_a:.3f}", f"{part.ms_b:.3f}", f"{part.change_ms:+.3f}") for part in parts]
        )
        lines.append(
            f"| **{_TOTAL_LABELS[step]}** | {_sum(parts, 'ms_a')} | {_sum(parts, 'ms_b')} | {_sum(parts, 'change_ms', '+')} |"
        )
    for kind, matches in (("kernel", comparison.kernels), ("operator", comparison.operators)):
        if matches:
            columns = (kind, "matched by", "A, ms", "B, ms", "change, ms")
            lines += ["", f"<details><summary>{kind.capitalize()}s by change</summary>", ""]
            lines += [*table(columns, map(_match, matches[:MAX_TABLE_ROWS]), words=2), "", "</details>"]
    for heading, findings in words.findings(comparison):
        lines += ["", f"**{heading}**", "", *(f"- {_plain(finding.title)}" for finding in findings)]
    return "\n".join(lines) + "\n"


def _differing(comparison: Comparison) -> list[str]:
    """Return the conditions that differ, as a table for a terminal, and a sentence on the rest."""
    rows = conditions.rows(comparison)
    widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    lines = [f"  {condition:<{widths[0]}}  {a:<{widths[1]}} → {b}" for condition, a, b in rows]
    unchanged = conditions.unchanged_conditions(comparison)
    return ["", *([conditions.TITLE, *lines] if lines else []), *([unchanged] if unchanged else [])]


def _blocks(comparison: Comparison) -> list[str]:
    """Return the steps of A and B as bars of block characters on one scale: work and lost time."""
    steps = step_parts.steps_divided(comparison)
    if not steps:
        return []
    bars = step_parts.bars(comparison, steps[0])
    totals = {side: math.fsum(getattr(bar, side) for bar in bars) for side in ("ms_a", "ms_b")}
    longest = max(*totals.values(), 1e-12)
    has_gpu_work = any(step_parts.gpu_worked(comparison))
    work_label, lost_label = ("the GPU computes", "lost") if has_gpu_work else ("the host works", "waits for batches")
    lost_owners = (*LOST_OWNERS, OUTSIDE_PROFILE) if has_gpu_work else (HOST_LOADING,)
    text_lines = []
    for name, side in (("A", "ms_a"), ("B", "ms_b")):
        lost_ms = math.fsum(getattr(bar, side) for bar in bars if bar.owner in lost_owners)
        blocks, lost_blocks = (round(BAR_CHARACTERS * ms / longest) for ms in (totals[side], lost_ms))
        bar = WORK * (blocks - lost_blocks) + LOST * lost_blocks
        text_lines.append(f"{name}  {bar:<{BAR_CHARACTERS}}  {fmt.duration_ms(totals[side])}")
    return ["```text", *text_lines, f"{WORK} {work_label}   {LOST} {lost_label}", "```", ""]


_PART_HEADINGS: dict[step_parts.Step, str] = {"run": "where the step changed", "profiled": "where the profiled step changed"}
_TOTAL_LABELS: dict[step_parts.Step, str] = {"run": "step time", "profiled": "mean profiled step"}


def _sum(parts: Sequence[WaterfallBar], column: str, sign: str = "") -> str:
    return f"{math.fsum(getattr(part, column) for part in parts):{sign}.3f}"


def _match(row: Match) -> tuple[str, ...]:
    ms_a, ms_b, change_ms = (float(ns) / 1e6 for ns in (row.ns_a, row.ns_b, row.change_ns))
    return fmt.clean(row.label, 80), changes.MATCHED_BY[row.how], f"{ms_a:.3f}", f"{ms_b:.3f}", f"{change_ms:+.3f}"


def text(comparison: Comparison, outcomes: Sequence[GateOutcome] = ()) -> str:
    """Return the comparison for a terminal."""
    lines = [
        words.headline(comparison),
        words.certainty(comparison),
        *filter(None, [setup_changes.tested_prediction(comparison)]),
    ]
    lines += _differing(comparison)
    notes = [
        *setup_changes.sentences(comparison),
        *filter(None, (setup_changes.why_none(comparison), setup_changes.next_in_b(comparison))),
    ]
    lines += ["", *notes] if notes else []
    lines += ["", *limits.sentences(comparison)] if limits.sentences(comparison) else []
    lines += ["", f"A: {words.names(comparison)[0]}    B: {words.names(comparison)[1]}"]
    for rows in filter(None, (audit.pair_rows(comparison), changes.metric_rows(comparison))):
        lines += [*(f"  {line}" for line in aligned(rows, "<>><")), ""]
    for step in step_parts.steps_divided(comparison):
        parts = step_parts.bars(comparison, step)
        width = max(len(part.named) for part in parts)
        lines += ["", f"{step_parts.title(parts, step, shown=words.shown(comparison))} (ms per step)"]
        lines += [f"  {part.named:<{width}}  {part.ms_a:>9.3f}  {part.ms_b:>9.3f}  {part.change_ms:>+9.3f}" for part in parts]
    for heading, findings in words.findings(comparison):
        lines += ["", heading, *(f"  {fmt.clean(finding.title)}" for finding in findings)]
    lines += ["", *(outcome.sentence for outcome in outcomes)] if outcomes else []
    return for_terminals(lines)
