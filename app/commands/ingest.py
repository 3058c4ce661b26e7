"""``sawtooth ingest``: read traces and telemetry into the data folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.app import format as fmt
from sawtooth.app.commands.inputs import nothing_in, show_first_look, show_progress
from sawtooth.app.commands.names import data_folder
from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.commands.runs import run_as_json
from sawtooth.app.jobs.ingest_files import files_of, ingest_into_runs
from sawtooth.app.printable import json_text
from sawtooth.ingest.runs.clocks import ClockCorrection
from sawtooth.ingest.runs.manifests import add_tags


def ingest(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…",
            exists=True,
            help="Traces (.json, .json.gz), Nsight Systems exports (.sqlite) and telemetry; a folder means all files in it.",
        ),
    ],
    data: DataOption = None,
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the first file's name.")] = None,
    separate: Annotated[bool, typer.Option("--separate", help="Make every file its own run.")] = False,
    keep_source: Annotated[
        bool, typer.Option(help="Keep the compressed source files, to ingest them again later and to open them in Perfetto.")
    ] = True,
    time_zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Time zone of telemetry with local times: Europe/Berlin, +02:00 or UTC."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Time of the first sample, for telemetry without times: 2026-11-21T09:30:00+01:00, or Unix seconds.",
        ),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Time between samples, for telemetry without times.")
    ] = None,
    shift: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Time to add to all samples, if the clock of their host differs from the trace's."
        ),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Tag of the run; may be repeated. A tag such as batch_size=64 is a setting for sweeps."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """Ingest files. Traces of one job become one run; telemetry given with a trace is attached to it.

    The last line of the output is the run's id.
    """
    folder = data_folder(data)
    named_files: list[tuple[Path, str]] = []
    single_files: list[str] = []
    for path in files:
        files_in_path, is_folder = files_of(path)
        if not files_in_path:
            raise nothing_in(path)
        named_files += files_in_path
        single_files += [] if is_folder else [name for _, name in files_in_path]
    progress, show_preview = (None, None) if as_json or not sys.stderr.isatty() else (show_progress, show_first_look)
    correction = ClockCorrection(time_zone, start, interval, shift)
    ingested = ingest_into_runs(
        folder,
        named_files,
        separate=separate,
        keep_source=keep_source,
        name=name,
        tolerant=True,
        progress=progress,
        on_first_look=show_preview,
        correction=correction,
    )
    for sentence in ingested.refused:
        say(f"Left out {sentence}", err=True)
    for sentence in ingested.notices:
        say(sentence, err=True)
    for run in ingested.runs if tag else []:
        add_tags(folder, run.id, tag or [])
    if as_json:
        say(json_text([run_as_json(run) for run in ingested.runs]))
    for run in ingested.runs if not as_json else []:
        kinds = ", ".join(f"{fmt.clean(r.source_name)} ({r.kind})" for r in run.recordings)
        say(f"{fmt.clean(run.name)}: {kinds}")
        say(run.id)
    if any(sentence.startswith(f"{file_name}: ") for sentence in ingested.refused for file_name in single_files):
        raise typer.Exit(2)  # The command line names an unreadable file. The other files are ingested.
