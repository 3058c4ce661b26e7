"""The inputs of a command: run ids, files or folders."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sawtooth.analysis.run.preview import TracePreview
from sawtooth.analysis.store.library import Library
from sawtooth.app import format as fmt
from sawtooth.app.commands.names import data_folder, data_root, run_named
from sawtooth.app.commands.output import say, show_progress_line
from sawtooth.app.commands.temporary_runs import files_read
from sawtooth.app.jobs.ingest_files import IngestedFiles, files_of, ingest_into_runs
from sawtooth.app.words.run import preview
from sawtooth.ingest.errors import UsageError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.recording import IngestProgress
from sawtooth.ingest.schema import DataFolder

MAX_NAMED_RUNS = 4  # A sentence names at most this many runs, so that it stays short.


@dataclass(frozen=True)
class OpenedRun:
    """A run that a command can analyse."""

    library: Library
    manifest: Manifest


def show_progress(name: str, progress: IngestProgress) -> None:
    """Show the progress of reading a file on stderr."""
    total = f" of {fmt.bytes_(progress.bytes_total)}" if progress.bytes_total else ""
    show_progress_line(f"{fmt.clean(name, 40)}: {fmt.bytes_(progress.bytes_done)}{total}, {progress.events:,} events")


def show_first_look(look: TracePreview) -> None:
    """Print on stderr what is known about a trace before its analysis."""
    show_progress_line("")
    say(fmt.clean(preview(look), 200), err=True)


def nothing_in(path: Path) -> UsageError:
    """Return the error for a path without a trace or telemetry."""
    return UsageError(
        f"{path} contains neither a trace nor telemetry. Give the folder with the profiler's .json or .json.gz files, an Nsight export (.sqlite) or a telemetry log."
    )


@contextmanager
def opened(inputs: Sequence[str], data: Path | None, *, keep: bool = False, several_by: str = "") -> Iterator[OpenedRun]:
    """Open the one run that ``inputs`` name: a run id or name, or files and folders of one run.

    Raises UsageError if the files are several runs. The message names ``several_by``, the option that accepts several runs.
    """
    with opened_all(inputs, data, keep=keep) as several:
        if len(several) > 1:
            names = ", ".join(run.manifest.name for run in several[:MAX_NAMED_RUNS])
            further = ", …" if len(several) > MAX_NAMED_RUNS else ""
            option = f"Add {several_by} for all of them, or give" if several_by else "Give"
            raise UsageError(
                f"These files are {len(several)} runs ({names}{further}). {option} the files of one run at a time."
            )
        yield several[0]


@contextmanager
def opened_all(inputs: Sequence[str], data: Path | None, *, keep: bool = False) -> Iterator[list[OpenedRun]]:
    """Open every run (at least one) that ``inputs`` name: a run id or name, or files and folders.

    Files are read into a cache. With ``keep``, they are stored as runs in the data folder.
    """
    paths = [Path(text) for text in inputs]
    if not any(path.exists() for path in paths):
        if len(inputs) != 1:
            raise UsageError(f"None of {', '.join(inputs)} is a file. Give one run id, or files of one run.")
        folder = data_folder(data)
        manifest = run_named(folder, inputs[0])
        with Library(folder) as library:
            yield [OpenedRun(library, manifest)]
        return
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist.")
    files, tolerant = _files(paths)

    def read(folder: DataFolder) -> IngestedFiles:
        return _read(folder, files, tolerant, keep)

    if keep:
        folder = data_folder(data)
        ingested = read(folder)
        _print_notices(ingested.refused, ingested.notices)
        with Library(folder) as library:
            yield [OpenedRun(library, manifest) for manifest in ingested.runs]
        return
    with files_read(data_root(data), files, read) as (folder, runs, messages):
        _print_notices(messages.refused, messages.notices)
        with Library(folder) as library:
            yield [OpenedRun(library, manifest) for manifest in runs]


def _files(paths: list[Path]) -> tuple[list[tuple[Path, str]], bool]:
    """Return the files of ``paths`` with display names, and whether one of the paths is a folder.

    Unreadable files in a folder are skipped.
    """
    files: list[tuple[Path, str]] = []
    has_folder = False
    for path in paths:
        files_in_path, is_folder = files_of(path)
        if not files_in_path:
            raise nothing_in(path)
        has_folder |= is_folder
        files += files_in_path
    return files, has_folder


def _read(folder: DataFolder, files: list[tuple[Path, str]], tolerant: bool, keep: bool) -> IngestedFiles:
    progress, show_look = (show_progress, show_first_look) if sys.stderr.isatty() else (None, None)
    ingested = ingest_into_runs(folder, files, keep_source=keep, tolerant=tolerant, progress=progress, on_first_look=show_look)
    if progress is not None:
        show_progress_line("")
    return ingested


def _print_notices(refused: Sequence[str], notices: Sequence[str]) -> None:
    for sentence in refused:
        say(f"Left out {sentence}", err=True)
    for sentence in notices:
        say(sentence, err=True)
