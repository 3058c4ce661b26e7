"""The report of a run: Markdown for pull requests and job summaries, text for terminals."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

from sawtooth.analysis.knowledge.lost_time import UNATTRIBUTED
from sawtooth.analysis.knowledge.owners import LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.metrics.trust import Diagnostic
from sawtooth.analysis.reading_order import best_ms, is_advice
from sawtooth.analysis.run.model import Finding, LedgerRow, RankResult, RunResult
from sawtooth.analysis.run.scaled_ledger import NOTHING_MS
from sawtooth.analysis.run.verdict import Column, columns_of, judge, parts_of
from sawtooth.app import format as fmt
from sawtooth.app.printable import aligned
from sawtooth.app.reports import numbers
from sawtooth.app.reports.escaped import as_written, for_terminals
from sawtooth.app.theme import colour_of
from sawtooth.app.words import host as host_words
from sawtooth.app.words.advice import (
    advice_on_loss,
    below,
    diff,
    gain_text,
    note_on_other_changes,
    numbered,
    paragraphs,
    plan_heading,
    plan_lines,
)
from sawtooth.app.words.comparisons import audit as audit_words
from sawtooth.app.words.evidence import about_samples
from sawtooth.app.words.headline import about_now, action, forecast, headline
from sawtooth.app.words.predicted_gain import confidence_in_words
from sawtooth.app.words.run import step_time
from sawtooth.app.words.savings import predicted_range
from sawtooth.app.words.telemetry import shown_below

MARKER = "<!-- sawtooth-report -->"  # A bot finds its earlier comment by this text, and replaces the comment.
BUSY_OF_RUN = "GPU busy"
HEADS: dict[Column, str] = {"unprofiled": "run's step", "recorded": "profiled step"}
MAX_CHANGES = 3  # Changes that are shown with their code, as on the page.
BAR_CHARACTERS = 40  # Characters of a bar in Markdown. The bar and its time fit into a comment.
WORK, LOST = "█", "░"
MIN_LOSS_SHARE = 0.02  # Share of the step. A smaller loss is less than a block and not named.
MIN_WAIT_SHARE = 0.02  # Share of the step. A shorter wait needs no explanation.
LAST_UNDER_PROFILER = "The profiler delays this rank most. In the profiled steps the other ranks wait for this rank. In the run, this rank waits too."
MAX_TABLE_ROWS = 8  # Rows of a table in a comment. The JSON has all rows.


def markdown(result: RunResult) -> str:
    """Return the report as GitHub-flavoured Markdown: answer, step as a bar, changes, folded numbers."""
    lines = [
        MARKER,
        f"## {as_written(fmt.clean(result.manifest.name, fmt.NAME_LENGTH))}",
        "",
        f"**{as_written(headline(result))}**",
        "",
    ]
    for subtitle in filter(None, (_subtitle(result), numbers.what_a_step_is(result), *numbers.remarks(result))):
        lines += [as_written(subtitle), ""]
    lines += _blocks(result)
    lines += _findings_markdown(result)
    lines += ["", "<details><summary>Numbers</summary>", "", "| metric | value | trust |", "| --- | ---: | --- |"]
    if (busy := numbers.busy_of_run(result)) is not None:
        lines.append(f"| {BUSY_OF_RUN} | {busy} |  |")
    lines += [f"| {label} | {value} | {as_written(remark)} |" for label, value, remark in numbers.values(result)]
    absent = numbers.missing(result)
    lines += [f"| {labels} | {fmt.MISSING} | {as_written(reason)} |" for labels, reason in absent]
    if audited := numbers.without_repeated_reasons(audit_words.rows(result), absent):
        lines += ["", f"| {audit_words.TITLE.lower()} | |", "| --- | --- |"]
        lines += [f"| {as_written(label)} | {as_written(value)} |" for label, value in audited]
    for title, headings, parts in host_words.tables(result.host) if result.host else ():
        lines += ["", f"**{title}**", "", f"| {' | '.join(headings)} |", "| --- |" + " ---: |" * (len(headings) - 1)]
        lines += [f"| {as_written(part[0])} | {' | '.join(map(as_written, part[1:]))} |" for part in parts]
    if result.lead is not None and result.lead.ledger:
        heads, rows = _ledger_table(result.lead)
        lines += ["", f"| parts of a step | {' | '.join(heads)} |", "| --- |" + " ---: |" * len(heads)]
        lines += [f"| {' | '.join(map(as_written, row))} |" for row in rows]
    if limits := limiting_diagnostics(result):
        lines += ["", *(f"- {as_written(limit.sentence)}" for limit in limits)]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _subtitle(result: RunResult) -> str:
    """Return the line below the headline, without the title of the first finding."""
    line, first = below(result) or "", next(iter(result.findings), None)
    return line.removeprefix(f"{first.title}.").strip() if first is not None else line


def _blocks(result: RunResult) -> list[str]:
    """Return the step now and after the headline's change as bars of block characters."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or not verdict.step.value:
        return []
    lost = [part for part in verdict.parts if part.lost]
    lost_blocks = round(BAR_CHARACTERS * min(sum(part.share for part in lost), 1.0))
    bars = [("now", WORK * (BAR_CHARACTERS - lost_blocks) + LOST * lost_blocks, step_time(verdict))]
    if (after := forecast(result)) is not None:
        blocks = max(round(BAR_CHARACTERS * min(after.after_ms / verdict.step.value, 1.0)), 1)
        bars.append(("after", WORK * blocks, f"≈\u00a0{fmt.duration_ms(after.after_ms)}"))
    bar_lines = [f"{name:<6}{bar:<{BAR_CHARACTERS}}  {time}" for name, bar, time in bars]
    losses = [
        f"{colour_of(part.owner, part.cause).label} {fmt.part_ms(verdict.step.value, part.ms)}"
        for part in lost
        if part.share >= MIN_LOSS_SHARE
    ]
    legend = f"{WORK} the GPU computes" + (f"   {LOST} lost: {', '.join(losses)}" if lost_blocks and losses else "")
    return ["```text", *bar_lines, legend, "```"]


def text(result: RunResult) -> str:
    """Return the report for a terminal: the answer, what to change, the parts of a step, the numbers."""
    head, subtitle = headline(result), _subtitle(result)
    lines = [
        fmt.clean(result.manifest.name),
        head,
        *filter(None, [subtitle, numbers.what_a_step_is(result), *numbers.remarks(result)]),
    ]
    lines += _findings_text(result)
    if result.lead is not None and result.lead.ledger:
        lines += _ledger_text(result.lead)
    for title, headings, parts in host_words.tables(result.host) if result.host else ():
        lines += ["", title, *(f"  {line}" for line in aligned([headings, *parts], "<>"))]
    printed = {head, subtitle}
    lines += _readings_text(result, printed)
    lines += about_samples(result)
    lines += _audit_text(result)
    if limits := dict.fromkeys(limit.sentence for limit in limiting_diagnostics(result) if limit.sentence not in printed):
        lines += ["", "Remarks", *(f"  {sentence}" for sentence in limits)]
    return for_terminals(lines)


def _readings_text(result: RunResult, printed: Set[str]) -> list[str]:
    """Return the known readings, and the reasons for missing readings that are not yet in ``printed``."""
    rows = [
        (label, f"{value}   ({remark})" if remark else value)
        for label, value, remark in numbers.values(result, numbers.informative(result))
    ]
    if (busy := numbers.busy_of_run(result)) is not None:
        rows.insert(0, (BUSY_OF_RUN, busy))
    width = max((len(label) for label, _ in rows), default=0)
    lines = ["", "Numbers", *(f"  {label:<{width}}  {value}" for label, value in rows)] if rows else []
    absent = [f"  {labels}: {reason}" for labels, reason in numbers.missing(result) if reason not in printed]
    return [*lines, "", "Numbers without a value, and the reason", *absent] if absent else lines


def _audit_text(result: RunResult) -> list[str]:
    """Return the audit's lines that are not also among the numbers, and the unknown ones by reason."""
    rows, unknown = audit_words.known_and_unknown(result, audit_words.ALSO_NUMBERS)
    if not rows:
        return []
    reasons = {reason for _, reason in numbers.missing(result)}
    not_known = [f"  {labels}: {reason}" for labels, reason in unknown if reason not in reasons]
    lines = ["", audit_words.TITLE, *(f"  {line}" for line in aligned(rows))]
    return [*lines, *not_known] if result.lead is not None else lines


def _ledger_text(rank: RankResult) -> list[str]:
    heads, rows = _ledger_table(rank)
    title = "Parts of a step" if len(rank.counted) else "Where the time goes"
    lines = aligned([(title, *heads), *((f"  {name}", *cells) for name, *cells in rows)], "<>")
    return ["", *lines, *([f"  {LAST_UNDER_PROFILER}"] if _is_last_under_profiler(rank) else [])]


def _is_last_under_profiler(rank: RankResult) -> bool:
    """Return whether the rank waits for other ranks in the run, but not under the profiler."""
    waits = [row for row in rank.ledger if row.owner == "exposed_comm" and row.cause == "comm_wait"]
    run_ms, profiled_ms = (sum(_ms(row, column) or 0.0 for row in waits) for column in ("unprofiled", "recorded"))
    return run_ms > MIN_WAIT_SHARE * (rank.best.ms or 0.0) > 0 and profiled_ms < MIN_WAIT_SHARE * run_ms


def gain(result: RunResult, finding: Finding) -> str:
    """Return a finding's gain, such as "312 ms → ≈ 47 ms"; without a prediction, the gain in words."""
    step_ms = best_ms(result)
    if finding.claims == "gain" and finding.predicted_step_ms is not None and step_ms:
        return fmt.step_change(step_ms, finding.predicted_step_ms, about=about_now(result))
    return gain_text(result, finding)


def _findings_markdown(result: RunResult) -> list[str]:
    """Return the first changes with their code, then all findings as a folded table."""
    if not result.findings:
        return []
    lines = ["", f"**1. {as_written(loss[0])}**: {as_written(loss[1])}"] if (loss := advice_on_loss(result)) else []
    advice = [(number, finding) for number, finding in numbered(result) if is_advice(finding)][:MAX_CHANGES]
    for number, finding in advice:
        change = f"**{number}. {as_written(action(finding))}**: {gain(result, finding)}, {confidence_in_words(finding)}"
        observed = "" if finding.observed == shown_below(result) else finding.observed
        notes = (
            fmt.spaced(finding.title),
            observed,
            note_on_other_changes(result, finding, plan_shown=plan_heading(result) is not None),
        )
        lines += ["", change, "", as_written(". ".join(filter(None, notes)))]
        lines += ["", "```diff", *diff(finding.changes[0]).replace("```", "").splitlines(), "```"] if finding.changes else []
    if title := plan_heading(result):
        lines += ["", f"**{title}**", "", *(f"1. {as_written(line)}" for line in plan_lines(result))]
    rows = [
        f"| {f.severity} | {as_written(fmt.spaced(f.title))} | {gain(result, f)} | {f.confidence} |" for f in result.findings
    ]
    summary = (
        f"<details><summary>All {len(rows)} findings</summary>" if len(rows) > 1 else "<details><summary>The finding</summary>"
    )
    return [
        *lines,
        "",
        summary,
        "",
        "| | what to change | step | confidence |",
        "| --- | --- | --- | --- |",
        *rows,
        "",
        "</details>",
    ]


def _findings_text(result: RunResult) -> list[str]:
    loss = advice_on_loss(result)
    if not result.findings and loss is None:
        return []
    lines = ["", "What to change", *([f"  1. {loss[0]}", f"     {loss[1]}"] if loss else [])]
    said_below = fmt.spaced(fmt.clean(shown_below(result)))
    plan_shown = plan_heading(result) is not None
    for number, finding in numbered(result):
        lines += [
            f"  {number}. {fmt.spaced(fmt.clean(finding.title))}",
            *(f"     {paragraph}" for paragraph in paragraphs(finding) if paragraph != said_below),
            f"     {gain(result, finding)}{_range_without_plan(result, finding)}, {confidence_in_words(finding)}",
            *([f"     {note}"] if (note := note_on_other_changes(result, finding, plan_shown=plan_shown)) else []),
        ]
    if title := plan_heading(result):
        lines += ["", title, *(f"  {number}. {line}" for number, line in enumerate(plan_lines(result), 1))]
    return lines


def _range_without_plan(result: RunResult, finding: Finding) -> str:
    """Return a prediction's range if the report shows no plan; a plan has the ranges."""
    interval = predicted_range(finding) if plan_heading(result) is None else ""
    return f" (80\u00a0% interval: {interval})" if interval else ""


def limiting_diagnostics(result: RunResult) -> list[Diagnostic]:
    """Return the diagnostics that limit the numbers; the JSON also lists events that no number uses."""
    return [diagnostic for diagnostic in result.diagnostics if not diagnostic.key.startswith("not_stored")]


def _ledger_table(rank: RankResult) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return headings and rows of the parts of a step: name, main column, share, other columns."""
    columns = columns_of(rank)
    rows = sorted(_with_outside(rank), key=lambda row: -(_ms(row, columns[0]) or 0.0))
    total_ms = sum(_ms(row, columns[0]) or 0.0 for row in rows)
    cells = []
    for row in rows:
        name, owner = colour_of(row.owner, row.cause).label, colour_of(row.owner).label
        if row.owner in LOST_OWNERS and name != owner:
            name = f"{owner}: {name.removeprefix('communication ')}"
        first, *other_ms = (_ms(row, column) for column in columns)
        share = fmt.share((first or 0.0) / total_ms if total_ms else row.share)
        cells.append((name, _duration(first, total_ms), share, *(_duration(ms, total_ms) for ms in other_ms)))
    heads = [HEADS[column] for column in columns] if len(rank.counted) else ["recorded time"]
    return [heads[0], "share", *heads[1:]], cells


def _with_outside(rank: RankResult) -> list[LedgerRow]:
    """Return the ledger's rows, with a separate row for the time outside the profiled steps."""
    outside_ms = next((part.ms for part in parts_of(rank, "unprofiled") if part.owner == OUTSIDE_PROFILE), 0.0)
    if not outside_ms:
        return list(rank.ledger)
    outside = replace(
        rank.ledger[0],
        owner=OUTSIDE_PROFILE,
        cause=None,
        ns=0,
        ms_per_step=0.0,
        ms_per_step_unprofiled_est=outside_ms,
        share=0.0,
    )
    rows = []
    for row in rank.ledger:
        if row.owner == "idle" and row.cause == UNATTRIBUTED and row.device == rank.device:
            inside_ms = (row.ms_per_step_unprofiled_est or 0.0) - outside_ms
            if not row.ns and inside_ms < NOTHING_MS:
                continue
            row = replace(row, ms_per_step_unprofiled_est=max(inside_ms, 0.0))
        rows.append(row)
    return [*rows, outside]


def _ms(row: LedgerRow, column: Column) -> float | None:
    recorded = row.ms_per_step if row.ms_per_step is not None else row.ns / 1e6
    return row.ms_per_step_unprofiled_est if column == "unprofiled" else recorded


def _duration(ms: float | None, step_ms: float) -> str:
    return fmt.part_ms(step_ms, ms) if ms is not None else fmt.MISSING
