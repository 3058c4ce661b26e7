"""``sawtooth ingest`` and ``sawtooth runs``: bring files in, and list what is there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from app import format as people
from app.commands.inputs import data_folder
from app.intake import bring_in, files_of
from ingest.clocks import Said
from ingest.recording import Progress
from ingest.schema import Manifest


def ingest(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…", exists=True, help="Traces (.json, .json.gz) and telemetry; a folder stands for its files."
        ),
    ],
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; the first file's where none is given.")] = None,
    separate: Annotated[bool, typer.Option("--separate", help="Every file its own run, whatever they share.")] = False,
    keep_source: Annotated[
        bool, typer.Option(help="Keep the source bytes, compressed, to re-ingest later and open in Perfetto.")
    ] = True,
    time_zone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Zone of telemetry whose times are local: Europe/Berlin, +02:00 or UTC."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When telemetry without times began: 2026-11-21T09:30:00+01:00, or Unix seconds."),
    ] = None,
    interval: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Between the samples of telemetry without times.")
    ] = None,
    shift: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Added to telemetry's times, where its host's clock differs from the trace's."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(help="Tag of the run, may be given several times; batch_size=64 is a setting for sweeps."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """Ingest files; ranks of one job join one run, telemetry given with a trace attaches to it. Prints the run id on its last line."""
    folder = data_folder(data)
    given: list[tuple[Path, str]] = []
    tolerant = False
    for path in files:
        found, is_folder = files_of(path)
        given += found
        tolerant |= is_folder
    progress = None if as_json or not sys.stderr.isatty() else _show
    said = Said(time_zone, start, interval, shift)
    brought = bring_in(
        folder, given, separate=separate, keep_source=keep_source, name=name, tolerant=tolerant, progress=progress, said=said
    )
    for sentence in brought.refused:
        typer.echo(f"Left out {sentence}", err=True)
    for sentence in brought.unplaced:
        typer.echo(sentence, err=True)
    for run in brought.runs if tag else []:
        folder.write_manifest(msgspec.structs.replace(run, tags=list(dict.fromkeys([*run.tags, *(tag or [])]))))
    if as_json:
        typer.echo(json.dumps([_plain(run) for run in brought.runs], ensure_ascii=False))
        return
    for run in brought.runs:
        kinds = ", ".join(f"{people.clean(r.source_name)} ({r.kind})" for r in run.recordings)
        typer.echo(f"{people.clean(run.name)}: {kinds}")
        typer.echo(run.id)


def _show(name: str, progress: Progress) -> None:
    total = f" of {people.bytes_(progress.bytes_total)}" if progress.bytes_total else ""
    typer.echo(
        f"\r{people.clean(name, 40)}: {people.bytes_(progress.bytes_done)}{total}, {progress.events:,} events\x1b[K",
        nl=False,
        err=True,
    )


def _plain(run: Manifest) -> dict[str, Any]:
    return {
        "id": run.id,
        "name": run.name,
        "recordings": [{"id": r.id, "kind": r.kind, "rank": r.rank, "source_name": r.source_name} for r in run.recordings],
    }


def runs(
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """List the runs of the data folder, newest first."""
    manifests = data_folder(data).manifests()
    if as_json:
        typer.echo(json.dumps([_plain(m) for m in manifests], ensure_ascii=False))
        return
    if not manifests:
        typer.echo("No runs yet. `sawtooth ingest FILE…` brings one in.")
    for m in manifests:
        typer.echo(f"{m.id}  {people.clean(m.name)}  ({people.many(len(m.traces), 'trace')}, {len(m.telemetry)} telemetry)")
