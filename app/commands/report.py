"""``sawtooth report``: one run's numbers as JSON, Markdown, HTML or text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.compare.prediction_record import remember, run_before
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.contract import report_schema
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.staircase import staircase_of
from sawtooth.app.commands.dumps import answer_of
from sawtooth.app.commands.inputs import OpenedRun, opened, opened_all
from sawtooth.app.commands.output import (
    DataOption,
    Format,
    JsonOption,
    KeepOption,
    OutputOption,
    TableFormat,
    format_for,
    say,
    write,
)
from sawtooth.app.printable import json_text
from sawtooth.app.reports import text as report_text
from sawtooth.app.words.comparisons import setup_changes
from sawtooth.ingest.errors import UsageError


def report(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="RUN|FILE…|DIR", help="A run id or name, or files of one run: traces of its ranks, telemetry."),
    ] = None,
    format: Annotated[
        Format | None,
        typer.Option(help="json has a fixed schema, md is for pull requests, html is one file, text is for terminals."),
    ] = None,
    output: OutputOption = None,
    as_json: JsonOption = False,
    each: Annotated[
        bool, typer.Option("--each", help="Report every run of the files and folders, one after the other.")
    ] = False,
    data: DataOption = None,
    keep: KeepOption = False,
    schema: Annotated[bool, typer.Option("--schema", help="Only print the JSON Schema of --format json.")] = False,
) -> None:
    """Report a run's step time, idle time and its causes, tensor cores, MFU and findings."""
    if schema:
        say(json_text(report_schema(), 1))
        return
    if not inputs:
        raise UsageError("Name a run, or files of one run.")
    chosen = format_for(format, output, Format, as_json=as_json)
    if (answer := answer_of(inputs)) is not None:
        if chosen is Format.html:
            raise UsageError("Dumps of NCCL and memory can be reported as text, md or json, not as HTML.")
        answer([Path(text) for text in inputs], TableFormat(chosen.value), output)
        return
    if each and chosen is Format.html:
        raise UsageError("--each writes json, md or text, because an HTML report is about one run.")
    with (opened_all if each else _report_one)(inputs, data, keep=keep) as runs:
        results = [result_of(run.manifest, run.library) for run in runs]
        tested = [_tested_change(run, result) for run, result in zip(runs, results, strict=True)]
        if chosen is Format.html:
            write(_html(runs[0], results[0]), output)
            return
    if chosen is Format.json:
        reports = [report_json(result) for result in results]
        write(json_text(reports if each else reports[0], 1), output)
        return
    form = report_text.markdown if chosen is Format.md else report_text.text
    lines = [form(result) + (f"\n{sentence}\n" if sentence else "") for result, sentence in zip(results, tested, strict=True)]
    write("\n".join(lines), output, bold_line=1 if chosen is Format.text else None)


def _html(run: OpenedRun, result: RunResult) -> str:
    from sawtooth.app.reports.html import run_html  # Imported only here, because its templates take a tenth of the start time.

    return run_html(result, staircase_of(run.library, result, every_choice=False))


def _tested_change(run: OpenedRun, result: RunResult) -> str | None:
    """Return the predicted and measured gain of the change that led to this run, as a sentence, or None.

    The tag ``after=NAME`` of the run names the run before the change. The comparison is also stored, by rule.
    """
    folder = run.library.folder
    before = run_before(run.manifest, folder.manifests())
    if before is None:
        return None
    sides = [side_of([run_result], run.library) for run_result in (result_of(before, run.library), result)]
    comparison = compare(*sides)
    if comparison.prediction is not None:
        remember(folder, before.id, run.manifest.id, comparison.prediction)
    return setup_changes.tested_prediction(comparison)


@contextmanager
def _report_one(inputs: Sequence[str], data: Path | None, *, keep: bool) -> Iterator[list[OpenedRun]]:
    with opened(inputs, data, keep=keep, several_by="--each") as run:
        yield [run]
