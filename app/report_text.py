"""The report for people: Markdown for pull requests and job summaries, text for terminals."""

from __future__ import annotations

from analysis.ledger import LOST_OWNERS
from analysis.metrics import METRICS
from analysis.results import RankResult, RunResult
from app import format as people
from app.theme import colour_of
from app.words import first_line

MARKER = "<!-- sawtooth-report -->"  # lets a bot find and replace its own comment
TOP = 8  # rows of a table in a comment; the JSON has them all


def markdown(result: RunResult) -> str:
    """Return the report as GitHub-flavoured Markdown."""
    lines = [MARKER, f"## {people.markdown(result.manifest.name)}", "", first_line(result), ""]
    lines += ["| metric | value | trust |", "| --- | ---: | --- |"]
    for key, metric in METRICS.items():
        reading = result.metrics[key]
        note = reading.trust if reading.value is not None else reading.why_missing
        lines.append(f"| {metric.label} | {people.reading(key, reading)} | {note} |")
    if result.lead is not None:
        lines += ["", "| where a step goes | ms per step | share |", "| --- | ---: | ---: |"]
        lines += [f"| {name} | {ms} | {share} |" for name, ms, share in _ledger_rows(result.lead)]
    if result.diagnostics:
        lines += ["", *(f"- {d.severity}: {d.sentence}" for d in result.diagnostics)]
    return "\n".join(lines) + "\n"


def text(result: RunResult) -> str:
    """Return the report for a terminal."""
    lines = [people.clean(result.manifest.name), first_line(result), ""]
    width = max(len(m.label) for m in METRICS.values())
    for key, metric in METRICS.items():
        reading = result.metrics[key]
        shown = people.reading(key, reading) if reading.value is not None else f"not known: {reading.why_missing}"
        mark = "" if reading.trust == "ok" or reading.value is None else f"   ({reading.trust}: {' '.join(reading.notes)})"
        lines.append(f"  {metric.label:<{width}}  {shown}{mark}")
    if result.lead is not None:
        lines += ["", "Where a step goes"]
        rows = _ledger_rows(result.lead)
        names = max((len(name) for name, _, _ in rows), default=0)
        lines += [f"  {name:<{names}}  {ms:>10}  {share:>7}" for name, ms, share in rows]
    if result.diagnostics:
        lines += ["", "Worth knowing", *(f"  {d.sentence}" for d in result.diagnostics)]
    return "\n".join(lines) + "\n"


def _ledger_rows(rank: RankResult) -> list[tuple[str, str, str]]:
    rows = []
    for row in rank.ledger:
        name = colour_of(row.owner, row.cause).label
        if row.cause is not None and row.owner in LOST_OWNERS:
            name = f"{colour_of(row.owner).label}: {name}"
        rows.append(
            (
                name,
                people.duration_ms(row.ms_per_step) if row.ms_per_step is not None else people.MISSING,
                people.share(row.share),
            )
        )
    return rows
