"""``sawtooth report``: what one run's numbers are, as JSON, Markdown or text."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from analysis.report import report_json
from analysis.result_store import result_of
from app import report_text
from app.commands.inputs import opened


class Format(StrEnum):
    """Output formats of the report."""

    json = "json"
    md = "md"
    text = "text"


def report(
    inputs: Annotated[
        list[str],
        typer.Argument(metavar="RUN|FILE…|DIR", help="A run id or name, or files of one run: traces of its ranks, telemetry."),
    ],
    format: Annotated[
        Format, typer.Option(help="json follows a fixed contract; md suits a pull request; text a terminal.")
    ] = Format.text,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    keep: Annotated[bool, typer.Option(help="Keep what is ingested on the fly in the data folder.")] = False,
) -> None:
    """Report a run's step time, idle time and causes, tensor cores, MFU and findings."""
    with opened(inputs, data, keep=keep) as run:
        result = result_of(run.manifest, run.library)
        if format is Format.json:
            typer.echo(json.dumps(report_json(result), indent=1, ensure_ascii=False))
        elif format is Format.md:
            typer.echo(report_text.markdown(result), nl=False)
        else:
            typer.echo(report_text.text(result), nl=False)
