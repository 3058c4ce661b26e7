"""``sawtooth reduce``: make a run from the summaries of a job's ranks."""

from __future__ import annotations

from typing import Annotated

import typer

from sawtooth.analysis.ranks.stragglers.sentences import straggler_cause, straggler_name
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.app import format as fmt
from sawtooth.app.commands.names import data_folder
from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.jobs.whole_job import ingest_job
from sawtooth.app.printable import json_text


def reduce(
    summaries: Annotated[
        str, typer.Argument(metavar="PLACE", help="Where sawtooth map wrote them: a folder, s3://…, gs://…, az://…")
    ],
    sources: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLACE",
            help="Where traces and telemetry are stored, as given to sawtooth map; may be repeated. Files elsewhere are not opened.",
        ),
    ] = None,
    data: DataOption = None,
    name: Annotated[str | None, typer.Option(help="Name of the run. Default: the last part of PLACE.")] = None,
    open_: Annotated[
        list[int] | None, typer.Option("--open", metavar="RANK", help="Also ingest the trace of this rank; may be repeated.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the run's id and the numbers of ranks and stragglers as JSON.")
    ] = False,
) -> None:
    """Make a run from a job's summaries: which ranks delay the job, why, and what a step would gain.

    At most 16 ranks get recordings of their own. To add ranks whose traces arrive later, run map and reduce again.

    The last line of the output is the run's id.
    """
    folder = data_folder(data)
    job = ingest_job(folder, summaries, name, tuple(open_ or ()), sources=sources or ())
    for sentence in job.notices:
        say(f"Not opened: {sentence}", err=True)
    with Library(folder) as library:
        result = result_of(job.manifest, library)
    stragglers = result.communication.stragglers if result.communication else ()
    if as_json:
        say(json_text({"id": job.manifest.id, "ranks": len(job.overview.ranks), "stragglers": len(stragglers)}))
        return
    for note in job.overview.notes:
        say(note)
    if not stragglers:
        say(f"None of {len(job.overview.ranks):,} ranks delays the job.")
    for straggler in stragglers:
        reason = f" ({text})" if (text := straggler_cause(straggler)) else ""
        say(
            f"{straggler_name(straggler, result.ranks)}: {fmt.duration_ms(straggler.own_ms)} of each step longer than its peers{reason}; "
            f"a step gains {fmt.duration_ms(straggler.gain_ms)}"
        )
    say(job.manifest.id)
