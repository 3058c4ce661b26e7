"""The report for people: Markdown for pull requests and job summaries, text for terminals."""

from __future__ import annotations

from analysis.ledger import LOST_OWNERS
from analysis.metrics import METRICS
from analysis.run_result import Finding, RankResult, RunResult
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
    lines += _findings_markdown(result)
    if told := worth_knowing(result):
        lines += ["", *(f"- {sentence}" for sentence in told)]
    return "\n".join(lines) + "\n"


def text(result: RunResult) -> str:
    """Return the report for a terminal."""
    lines = [people.clean(result.manifest.name), first_line(result), ""]
    width = max(len(m.label) for m in METRICS.values())
    for key, metric in METRICS.items():
        reading = result.metrics[key]
        shown = people.reading(key, reading) if reading.value is not None else f"not known: {reading.why_missing}"
        why = ": ".join((reading.trust, *reading.notes[:1]))
        mark = "" if reading.trust == "ok" or reading.value is None else f"   ({why})"
        lines.append(f"  {metric.label:<{width}}  {shown}{mark}")
    if result.lead is not None:
        lines += ["", "Where a step goes"]
        rows = _ledger_rows(result.lead)
        names = max((len(name) for name, _, _ in rows), default=0)
        lines += [f"  {name:<{names}}  {ms:>10}  {share:>7}" for name, ms, share in rows]
    lines += _findings_text(result)
    if told := worth_knowing(result):
        lines += ["", "Worth knowing", *(f"  {sentence}" for sentence in told)]
    return "\n".join(lines) + "\n"


def gain(finding: Finding, step_ms: float | None) -> str:
    """Return what a finding's change brings, for people: 312 ms → ≈ 47 ms; or its ceiling where no prediction is made."""
    if finding.claims == "gain" and finding.predicted_step_ms is not None and step_ms:
        return f"{people.duration_ms(step_ms)} → ≈ {people.duration_ms(finding.predicted_step_ms)}"
    if finding.claims == "ceiling" and finding.ceiling_ms_per_step is not None:
        return f"at most {people.duration_ms(finding.ceiling_ms_per_step)} a step"
    return caution(finding)


def caution(finding: Finding) -> str:
    """Return what stands where a finding claims no gain: it is worth knowing, and no recommendation."""
    if finding.predicted_step_ms is not None:
        return "by itself nothing: something else then sets the pace"
    return "ends the run" if finding.ends_the_run else "a caution, no gain claimed"


def _findings_markdown(result: RunResult) -> list[str]:
    if not result.findings or result.lead is None:
        return []
    rows = [
        f"| {f.severity} | {people.markdown(f.title, None)} | {gain(f, result.lead.best.ms)} | {f.confidence} |"
        for f in result.findings
    ]
    return ["", "| | what to change | step | confidence |", "| --- | --- | --- | --- |", *rows]


def _findings_text(result: RunResult) -> list[str]:
    if not result.findings or result.lead is None:
        return []
    lines = ["", "What to change"]
    for number, finding in enumerate(result.findings, 1):
        lines += [
            f"  {number}. {people.clean(finding.title)}",
            f"     {finding.fix}",
            f"     {gain(finding, result.lead.best.ms)}, confidence {finding.confidence}",
        ]
    return lines


def worth_knowing(result: RunResult) -> list[str]:
    """What limits the numbers. Events that Sawtooth measures nothing with are no limit; the JSON names them."""
    return [d.sentence for d in result.diagnostics if not d.key.startswith("not_stored")]


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
