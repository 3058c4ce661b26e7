"""``sawtooth map``: summarise every rank of a large job where its trace is stored."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from sawtooth.analysis.cluster.mapping import Engine, MapProgress, map_sources
from sawtooth.analysis.cluster.workers import in_processes
from sawtooth.app import format as fmt
from sawtooth.app.commands.output import say, show_progress_line
from sawtooth.app.jobs.rank_summary import summarise
from sawtooth.app.printable import json_text
from sawtooth.ingest.errors import SawtoothError, UsageError

PROGRESS_PERIOD_S = 0.5  # Time between two updates of the progress line in a terminal.
MAX_NAMED_SOURCES = 5  # Messages name at most this many sources that could not be summarised. The output gives their number.


class EngineName(StrEnum):
    """The engine that runs the work."""

    local = "local"
    ray = "ray"


def map_(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE…", help="Traces and telemetry, or where they are stored: a folder, s3://…, gs://… or az://…"
        ),
    ],
    to: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Where to store the summaries: a folder, s3://…, gs://… or az://…")
    ],
    part: Annotated[
        str,
        typer.Option(metavar="I/N", help="Summarise only the I-th (from 1) of N shares, for Slurm arrays and Kubernetes jobs."),
    ] = "1/1",
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")] = None,
    engine: Annotated[EngineName, typer.Option(help="ray spreads the work over a Ray cluster.")] = EngineName.local,
    address: Annotated[
        str | None,
        typer.Option(help="Address of the Ray cluster: auto or ray://HOST:10001. Default: a new cluster on this host."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Summarise each rank of a job (10 to 20 kB per rank). Existing summaries are not computed again.

    `sawtooth reduce` makes a run from the summaries.
    """
    share = _part(part)
    mapped = map_sources(sources, to, summarise, _engine(engine, address, jobs), part=share, progress=_progress())
    for outcome in mapped.refused[:MAX_NAMED_SOURCES]:
        say(f"Left out {outcome.url}: {outcome.refused}", err=True)
    for outcome in mapped.failed[:MAX_NAMED_SOURCES]:
        say(f"Not summarised: {outcome.url}: {outcome.failed}", err=True)
    counts = {
        "sources": mapped.sources,
        "before": mapped.before,
        "summarised": sum(outcome.ranks > 0 for outcome in mapped.outcomes),
        "refused": len(mapped.refused),
        "failed": len(mapped.failed),
    }
    if as_json:
        say(json_text(counts))
    else:
        say(
            f"{counts['summarised']:,} of {mapped.sources:,} sources summarised, {mapped.before:,} had a summary, "
            f"{counts['refused']:,} left out, {counts['failed']:,} failed."
        )
        places = sources
        if len(sources) > MAX_NAMED_SOURCES:
            places = list(dict.fromkeys(source.rpartition("/")[0] or "." for source in sources))
        say(shlex.join(["sawtooth", "reduce", to, *(word for place in places for word in ("--sources", place))]))
    if mapped.failed:
        raise SawtoothError(f"{len(mapped.failed):,} sources were not summarised. To try them again, run the same command.")


def _part(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise UsageError(f"--part {text} is not a share. Give 1/8 for the first of eight shares, up to 8/8.")
    return int(number), int(count)


def _engine(name: EngineName, address: str | None, jobs: int | None) -> Engine:
    if name is EngineName.ray:
        from sawtooth.analysis.cluster.ray_tasks import on_ray  # Ray is optional, so it is imported only if requested.

        return partial(on_ray, address=address, jobs=jobs)
    if address is not None:
        raise UsageError("--address is the address of a Ray cluster. Add --engine ray.")
    return partial(in_processes, workers=jobs or len(os.sched_getaffinity(0)))


def _progress() -> Callable[[MapProgress], None]:
    """Return a function that shows the progress on stderr: one line in a terminal, ten lines in a log."""
    began_s, shown = time.monotonic(), {"time_s": 0.0, "tenth": 0}

    def show(mapped: MapProgress) -> None:
        now_s, read = time.monotonic(), len(mapped.outcomes)
        tenth = 10 * mapped.done // max(mapped.sources, 1)
        is_terminal = sys.stderr.isatty()
        is_recent = now_s - shown["time_s"] < PROGRESS_PERIOD_S and mapped.done < mapped.sources
        if is_recent if is_terminal else tenth == shown["tenth"]:
            return
        shown.update(time_s=now_s, tenth=tenth)
        remaining = mapped.sources - mapped.before - read
        remaining_ms = 1000 * (now_s - began_s) / read * remaining if read else 0.0
        remaining_time = f", {fmt.duration_ms(remaining_ms)} left" if read and remaining else ""
        line = f"{mapped.done:,} of {mapped.sources:,} sources{remaining_time}"
        if is_terminal:
            show_progress_line(line)
        if not is_terminal or not remaining:
            say("" if is_terminal else line, err=True)

    return show
