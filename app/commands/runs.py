"""``sawtooth runs``: list, rename, tag, open and remove runs, and limit the size of the data folder."""

from __future__ import annotations

import re
import shutil
import sys
import time
import webbrowser
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from typing import Annotated, Any

import msgspec
import typer

from sawtooth.analysis.compare.prediction_record import records
from sawtooth.analysis.result_cache import RESULT, analysed_before, cached_file, remove_cached
from sawtooth.analysis.store.library import Library
from sawtooth.app import format as fmt
from sawtooth.app.commands.names import data_folder, run_named
from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.printable import aligned, json_text
from sawtooth.app.runs.card import Card, card_of, stored_card
from sawtooth.app.runs.listing import listed
from sawtooth.app.served_address import DEFAULT_PORT, ServedAddress, addresses
from sawtooth.app.server.start import link_to
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.manifests import delete_run, edit_run
from sawtooth.ingest.runs.proposals import needed_ids
from sawtooth.ingest.schema import DataFolder

UNITS = " kmgt"  # Each unit is 1000 times the previous one, or 1024 times if an i follows it.
MIN_SIZE = 10**6  # Bytes. A smaller number without a unit is probably a mistake.
OLDER_ANALYSIS = "analysed by an older version: open it or run `sawtooth report {run}`"
MAX_ANSWER_S = 2.0  # A server must answer within this time, because the user waits for the browser.
MAX_COLUMNS = 400  # Width of a line if the output is not a terminal. Other programs cut lines themselves.

RunsArgument = Annotated[list[str], typer.Argument(metavar="RUN…", help="Ids or names of runs.")]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id or name of a run.")]
runs_app = typer.Typer(
    invoke_without_command=True, add_completion=False, help="List the runs of the data folder, newest first, or change them."
)


def run_as_json(run: Manifest) -> dict[str, Any]:
    """Return a run in its JSON form."""
    return {
        "id": run.id,
        "name": run.name,
        "recordings": [{"id": r.id, "kind": r.kind, "rank": r.rank, "source_name": r.source_name} for r in run.recordings],
    }


@runs_app.callback()
def list_runs(
    context: typer.Context,
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """List the runs of the data folder, newest first, or change them."""
    if context.invoked_subcommand is not None:
        return
    folder = data_folder(data)
    manifests = listed(folder.manifests())
    if as_json:
        say(json_text([run_as_json(m) for m in manifests]))
        return
    if not manifests:
        say(f"There are no runs in {folder.root}. `sawtooth ingest FILE…` makes a run; --data DIR names another folder.")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else MAX_COLUMNS
    cards = _cards(manifests, folder)
    older = [card is None and analysed_before(folder, run) for run, card in zip(manifests, cards, strict=True)]
    for line in aligned([_row(*columns) for columns in zip(manifests, cards, older, strict=True)]):
        say(line if len(line) <= width else f"{line[: width - 1]}…")


def _cards(runs: Sequence[Manifest], folder: DataFolder) -> list[Card | None]:
    """Return the card of each run; None if it is not analysed yet.

    A recording is opened only if its cached analysis has no card.
    """
    cards = [stored_card(run, folder) for run in runs]
    lacking = [i for i, run in enumerate(runs) if cards[i] is None and cached_file(folder, run, RESULT).exists()]
    if lacking:
        with Library(folder) as library:
            for i in lacking:
                cards[i] = card_of(runs[i], library)
    return cards


def _row(run: Manifest, card: Card | None, older: bool) -> tuple[str, ...]:
    step = fmt.reading("best_step_time_ms", card.readings["best_step_time_ms"]) if card and card.readings else fmt.MISSING
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.created_ns / 1e9))
    kinds = f"{fmt.many(len(run.traces), 'trace')}, {len(run.telemetry)} telemetry"
    not_analysed = OLDER_ANALYSIS.format(run=run.id) if older else f"not analysed yet ({kinds})"
    verdict = (card.headline or card.problem or "") if card else not_analysed
    return run.id, fmt.clean(run.name), step, when, ", ".join(fmt.clean(tag) for tag in run.tags), verdict


@runs_app.command()
def rm(runs: RunsArgument, data: DataOption = None) -> None:
    """Remove runs, and their recordings if no other run uses them."""
    folder = data_folder(data)
    for run in {run.id: run for run in [run_named(folder, text) for text in runs]}.values():
        _remove(folder, run)


def _remove(folder: DataFolder, run: Manifest) -> None:
    delete_run(folder, run.id)
    remove_cached(folder, run.id)
    example = " It is an example, which `sawtooth demo` brings back." if run.bundled else ""
    say(f"Removed {fmt.clean(run.name)} ({run.id}).{example}")


@runs_app.command()
def tag(
    run: RunArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG…", help="Tags to add. To remove a tag, write -TAG after --.")],
    data: DataOption = None,
) -> None:
    """Add tags to a run, or remove them.

    Add: sawtooth runs tag RUN baseline batch_size=64. Remove: sawtooth runs tag RUN -- -baseline.
    """
    folder = data_folder(data)
    manifest = run_named(folder, run)
    removed = {text[1:] for text in tags if text.startswith("-")}
    added = [text for text in tags if not text.startswith("-")]

    def with_tags(before: Manifest) -> Manifest:
        tags = dict.fromkeys([*before.tags, *added])
        return msgspec.structs.replace(before, tags=[tag for tag in tags if tag not in removed])

    edited = edit_run(folder, manifest.id, with_tags)
    say(f"{fmt.clean(edited.name)}: {', '.join(map(fmt.clean, edited.tags)) or 'no tags'}")


@runs_app.command()
def predictions(
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the prediction errors as JSON.")] = False,
) -> None:
    """List the errors of predictions in this data folder, by rule.

    A prediction counts if a later run, or `sawtooth try`, measured the change. These errors do not change later predictions.
    """
    tested = records(data_folder(data))
    if as_json:
        say(json_text([asdict(record) for record in tested], 1))
        return
    if not tested:
        say("No prediction was tested yet. Compare a run with the run after its change, or tag the later run after=NAME.")
    for record in tested:
        pairs = f"{record.pairs} pair{'s' if record.pairs > 1 else ''} of runs"
        errors = f"off by {fmt.share(record.median_error)} in the median, at worst by {fmt.share(record.worst_error)}"
        inside = f"; {record.covered} of {record.bounded} were inside the predicted interval" if record.bounded else ""
        say(f"{record.rule}: {pairs}, {errors}{inside}")
    if tested:
        say("These are the errors in this data folder. They do not change later predictions.")


@runs_app.command()
def rename(
    run: RunArgument, name: Annotated[str, typer.Argument(metavar="NAME", help="New name of the run.")], data: DataOption = None
) -> None:
    """Rename a run; its id and links remain the same."""
    if not name.strip():
        raise UsageError("A run's name cannot be empty.")
    folder = data_folder(data)
    manifest = edit_run(folder, run_named(folder, run).id, lambda now: msgspec.structs.replace(now, name=name.strip()))
    say(f"{fmt.clean(name.strip())}: {manifest.id}")


@runs_app.command("open")
def open_(
    run: RunArgument,
    data: DataOption = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the dashboard. Default: the port of the running server of the data folder.")
    ] = None,
) -> None:
    """Open a run's verdict in the browser; the dashboard must be running."""
    folder = data_folder(data)
    manifest = run_named(folder, run)
    # The default is tried too, because a server of an older version has not stored its address.
    servers = [addresse for addresse in addresses(folder) if port in (None, addresse.port)] or [
        ServedAddress(port=port or DEFAULT_PORT)
    ]
    server = next((candidate for candidate in servers if candidate.answers(MAX_ANSWER_S)), None)
    if server is None:
        option = f" --port {port}" if port is not None else ""
        raise UsageError(f"No dashboard answers on port {servers[0].port}. Start one: sawtooth serve{option}")
    url = server.url(f"verdict?run={manifest.id}")
    say(url)
    webbrowser.open(link_to(folder, url, handed_over=True))


@runs_app.command()
def prune(
    max_size: Annotated[
        str, typer.Option("--max-size", metavar="SIZE", help="Disk space that the runs may use, such as 20GB or 500MB.")
    ],
    data: DataOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
) -> None:
    """Remove the oldest runs until the others fit into a size. Runs with tags are kept.

    `sawtooth demo` restores removed examples.
    """
    folder, limit = data_folder(data), size_of(max_size)
    newest_first = folder.manifests()
    # The files of a run's cached analysis have the run's id.
    files_of = {run.id: needed_ids(folder, run) | {run.id} for run in newest_first}
    users = Counter(chain.from_iterable(files_of.values()))
    sizes = {identifier: _file_sizes(folder, identifier) for identifier in users}
    total = sum(sizes.values())
    for run in reversed(newest_first):
        if total <= limit or run.tags:
            continue
        users.subtract(files_of[run.id])
        freed = sum(sizes[identifier] for identifier in files_of[run.id] if not users[identifier])
        total -= freed
        if dry_run:
            say(f"Would remove {fmt.clean(run.name)} ({run.id}), {fmt.bytes_(freed)}.")
        else:
            _remove(folder, run)
    verb = "would take" if dry_run else "take"
    note = " The remaining runs have tags, so they were not removed." if total > limit else ""
    say(f"The runs {verb} {fmt.bytes_(total)}; the limit is {fmt.bytes_(limit)}.{note}")


def size_of(text: str) -> int:
    """Return the bytes of a size such as 20GB, 20GiB, 500 MB or 1e9.

    Raises UsageError if the text is no size, or a small number without a unit.
    """
    parts = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*(?:([kmgt])(i?))?b?\s*", text.lower())
    try:
        size = int(float(parts[1]) * (1024 if parts[3] else 1000) ** UNITS.index(parts[2] or " ")) if parts else int(text)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r} is not a size. Write 20GB or 500MB.") from None
    if size < MIN_SIZE and text.strip().isdigit():
        raise UsageError(f"{text!r} has no unit. Write 20GB or 500MB.")
    return size


def _file_sizes(folder: DataFolder, identifier: str) -> int:
    places = (folder.recordings, folder.derived, folder.sources)
    return sum(file.stat().st_size for place in places for file in place.glob(f"{identifier}.*"))
