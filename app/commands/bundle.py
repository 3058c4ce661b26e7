"""``sawtooth export`` and ``sawtooth import``: runs with their sources in one ``.sawtooth`` file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.app import format as fmt
from sawtooth.app.commands.names import data_folder, run_named
from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.jobs.ingest_files import LEFT_UNCHANGED, ingest_into_runs
from sawtooth.app.printable import json_text
from sawtooth.app.reports.perfetto import UNKNOWN_CLOCKS, merged_trace, shifts
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.bundle import export_runs
from sawtooth.ingest.runs.bundle_file import is_bundle
from sawtooth.ingest.runs.proposals import accept, list_changes, proposal_for
from sawtooth.ingest.schema import DataFolder

SUFFIX = ".sawtooth"


def export(
    run: Annotated[list[str], typer.Argument(metavar="RUN…", help="Ids or names of runs, as listed by sawtooth runs.")],
    out: Annotated[
        Path | None, typer.Option("-o", "--output", "--out", metavar="FILE", help="Output file. Default: RUN.sawtooth.")
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Remove host names, home folders, the folders of paths, environment variables, and fields called user, token, key, secret or password. "
            "The runs get new ids.",
        ),
    ] = False,
    perfetto: Annotated[
        bool,
        typer.Option(
            "--perfetto", help="Instead write RUN.json.gz for ui.perfetto.dev: one trace with all ranks of a run on one clock."
        ),
    ] = False,
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the file's name and size as JSON.")] = False,
) -> None:
    """Write runs with their sources into one .sawtooth file.

    Drop the file on another dashboard, or read it with sawtooth import.
    """
    folder = data_folder(data)
    ids = list(dict.fromkeys(run_named(folder, text).id for text in run))
    if perfetto and (redact or len(ids) > 1):
        raise UsageError("--perfetto writes one run as it was recorded. Name one run, and leave --redact out.")
    target = out or Path(f"{ids[0]}{'.json.gz' if perfetto else SUFFIX}")
    if not target.parent.is_dir() or target.is_dir():
        raise UsageError(f"{target} cannot be written. Name a file in a folder that exists.")
    if perfetto:
        content = _for_perfetto(folder, ids[0], target)
    else:
        try:
            export_runs(folder, ids, target, redact=redact)
        except OSError as error:
            raise UsageError(f"{target} cannot be written ({error.strerror}). Name another file with -o.") from None
        content = fmt.many(len(ids), "run")
    size = target.stat().st_size
    if as_json:
        say(json_text({"file": str(target), "runs": ids, "bytes": size}))
    else:
        say(f"{target}: {content}, {fmt.bytes_(size)}")


def _for_perfetto(folder: DataFolder, run_id: str, target: Path) -> str:
    """Write all ranks of a run as one trace; return the number of traces in words."""
    with Library(folder) as library:
        result = result_of(folder.read_manifest(run_id), library)
    try:
        with closing(merged_trace(result, folder)) as pieces, target.open("wb") as file:
            file.writelines(pieces)
    except OSError as error:
        target.unlink(missing_ok=True)
        raise UsageError(f"{target} cannot be written ({error.strerror}). Name another file with -o.") from None
    if not shifts(result)[1]:
        say(UNKNOWN_CLOCKS, err=True)
    return fmt.many(len(result.manifest.traces), "trace")


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A .sawtooth file.")],
    apply: Annotated[bool, typer.Option("--apply", help="Also change existing runs to what the file says about them.")] = False,
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """Import the runs of a .sawtooth file with their names, facts and ids. Prints the run ids.

    A run that exists already changes only with --apply. Otherwise the command prints how the file differs from it.
    """
    if not is_bundle(file):
        raise UsageError(f"{file.name} is not a .sawtooth file. For traces and telemetry use sawtooth ingest.")
    folder = data_folder(data)
    ingested = ingest_into_runs(folder, [(file, file.name)])
    for sentence in ingested.notices:
        say(sentence, err=True)
    for run in ingested.runs:
        say(f"{fmt.clean(run.name)}: {fmt.many(len(run.traces), 'trace')}, {len(run.telemetry)} telemetry", err=True)
        if run.id in ingested.proposals:
            _print_proposal(folder, run, apply)
        if not as_json:
            say(run.id)
    if as_json:
        say(json_text([{"id": run.id, "name": run.name, "differs": run.id in ingested.proposals} for run in ingested.runs], 1))


def _print_proposal(folder: DataFolder, run: Manifest, apply: bool) -> None:
    """Print how the file differs from an existing run, and change the run if requested."""
    proposal = proposal_for(folder, run.id)
    differences = list_changes(run, proposal) if proposal is not None else []
    if apply:
        accept(folder, run.id)
    say(f"{fmt.clean(run.name)} {'was changed as the file says:' if apply else LEFT_UNCHANGED}", err=True)
    for difference in differences:
        texts = (fmt.clean(text, 80) or "nothing" for text in (difference.before, difference.after))
        say(f"  {fmt.clean(difference.what, 80)}: {' → '.join(texts)}", err=True)
    if not apply:
        say("To accept these changes, import the file with --apply, or decide on the Runs page.", err=True)
