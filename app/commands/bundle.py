"""``sawtooth export`` and ``sawtooth import``: runs with their sources in one ``.sawtooth`` file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app import format as people
from app.commands.inputs import data_folder
from app.intake import bring_in
from ingest.bundle import export_runs, is_bundle
from ingest.errors import UsageError

SUFFIX = ".sawtooth"


def export(
    run: Annotated[list[str], typer.Argument(metavar="RUN…", help="Ids or names of runs; `sawtooth runs` lists them.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="The file; RUN.sawtooth where none is given.")
    ] = None,
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Take out host names, home folders and the folders of paths. The runs get other ids."),
    ] = False,
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
) -> None:
    """Write runs with their sources into one .sawtooth file, to drop on another dashboard or to `sawtooth import`."""
    folder = data_folder(data)
    ids = list(dict.fromkeys(folder.resolve_run(text).id for text in run))
    target = out or Path(f"{ids[0]}{SUFFIX}")
    if not target.parent.is_dir() or target.is_dir():
        raise UsageError(f"{target} cannot be written: give a file in a folder that exists.")
    try:
        export_runs(folder, ids, target, redact=redact)
    except OSError as error:
        raise UsageError(f"{target} cannot be written ({error.strerror}).") from None
    typer.echo(f"{target}: {len(ids)} run{'s' if len(ids) > 1 else ''}, {people.bytes_(target.stat().st_size)}")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A .sawtooth file.")],
    data: Annotated[Path | None, typer.Option(help="Data folder.")] = None,
) -> None:
    """Bring in the runs of a .sawtooth file; they keep their names, facts and ids. Prints the run ids, one a line."""
    if not is_bundle(file):
        raise UsageError(f"{file.name} is no .sawtooth file. `sawtooth ingest` takes traces and telemetry.")
    for run in bring_in(data_folder(data), [(file, file.name)]).runs:
        typer.echo(
            f"{people.clean(run.name)}: {people.many(len(run.traces), 'trace')}, {len(run.telemetry)} telemetry", err=True
        )
        typer.echo(run.id)
