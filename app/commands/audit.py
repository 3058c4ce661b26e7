"""``sawtooth audit``: the checklist of one run, or the gain of each change in a chain of runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated, Any

import typer

from sawtooth.analysis.batch_predictions import step_at_batch
from sawtooth.analysis.compare.chain import RunChain, chain
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.findings.checklist import Checked, checklist
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.app.commands.inputs import opened
from sawtooth.app.commands.output import (
    DataOption,
    JsonOption,
    KeepOption,
    OutputOption,
    TableFormat,
    TableFormatOption,
    format_for,
    write,
)
from sawtooth.app.printable import aligned, json_text, printable
from sawtooth.app.reports import audit as report
from sawtooth.app.words import checklist as checklist_words
from sawtooth.app.words.comparisons import chain as chain_words
from sawtooth.ingest.errors import UsageError


def audit(
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|FILE…",
            help="One run: its checklist. Several runs, in the order of the changes: a table of the gain of each change.",
        ),
    ],
    format: TableFormatOption = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
    data: DataOption = None,
    keep: KeepOption = False,
) -> None:
    """Check a run against the tuning guides, or show the audits of several runs side by side."""
    chosen = format_for(format, output, TableFormat, as_json=as_json)
    with ExitStack() as stack:
        runs = [stack.enter_context(opened([text], data, keep=keep)) for text in inputs]
        results = [result_of(run.manifest, run.library) for run in runs]
        if len(results) > 1:
            libraries = {result.manifest.id: run.library for result, run in zip(results, runs, strict=True)}
            run_chain = chain(
                [side_of([result], run.library) for result, run in zip(results, runs, strict=True)],
                lambda run, times: step_at_batch(run, times, libraries[run.manifest.id]),
            )
            write(_table(run_chain, chosen), output)
            return
        lead = results[0].lead
        if lead is None:
            raise UsageError("This run has no GPU work to check. Give a trace.")
        with runs[0].library.open(lead.recording_id) as recording:
            checked = checklist(results[0], recording)
    write(_list(results[0], checked, chosen), output)


def _table(run_chain: RunChain, chosen: TableFormat) -> str:
    if chosen is TableFormat.md:
        return report.of_chain(run_chain)
    if chosen is TableFormat.json:
        return json_text(_as_json(run_chain), 1)
    return _align(chain_words.title(run_chain), [chain_words.heads(run_chain), *chain_words.rows(run_chain)])


def _list(result: RunResult, checked: tuple[Checked, ...], chosen: TableFormat) -> str:
    if chosen is TableFormat.md:
        return report.of_run(result, checked)
    if chosen is TableFormat.json:
        rows = [
            {
                "technique": row.technique.title,
                "status": row.status,
                "sentence": row.sentence,
                "rule": row.rule,
                "gain_ms": row.gain_ms,
            }
            for row in checked
        ]
        return json_text(rows, 1)
    return _align(
        checklist_words.title(result, checked),
        [list(row) for row in (checklist_words.COLUMNS, *checklist_words.rows(result, checked))],
    )


def _align(title: str, rows: list[list[str]]) -> str:
    return printable("\n".join([title, "", *aligned(rows)]), "\n")


def _as_json(run_chain: RunChain) -> dict[str, Any]:
    return {
        "runs": [{"id": run.manifest.id, "name": run.manifest.name} for run in run_chain.runs],
        "lines": [
            {
                "key": line.row.key,
                "label": line.row.label,
                "unit": line.row.unit,
                "values": [reading.value for reading in line.readings],
            }
            for line in run_chain.lines
        ],
        "changes": [
            {
                "fixed": list(change.fixed),
                "predicted_step_ms": change.predicted_ms,
                "before_ms": change.before_ms,
                "after_ms": change.after_ms,
                "verdict": change.verdict,
                "work": change.work,
            }
            for change in run_chain.changes
        ],
    }
