"""What a command is given: run ids, files or folders. Files are ingested on the fly, into a temporary folder unless kept."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from analysis.recordings import Library
from app.intake import bring_in, files_of
from ingest.errors import UsageError
from ingest.schema import DataFolder, Manifest, default_data_folder


@dataclass(frozen=True)
class Opened:
    """A run that a command can analyse."""

    library: Library
    manifest: Manifest


def data_folder(data: Path | None) -> DataFolder:
    """Return the data folder of ``--data``, or the default one; created when missing."""
    return DataFolder((data or default_data_folder()).expanduser().absolute()).create()


@contextmanager
def opened(inputs: Sequence[str], data: Path | None, *, keep: bool = False) -> Iterator[Opened]:
    """Open the one run that ``inputs`` name: a run id or name, or files and folders that belong to one run."""
    paths = [Path(text) for text in inputs]
    if not any(path.exists() for path in paths):
        if len(inputs) != 1:
            raise UsageError(f"None of {', '.join(inputs)} is a file. Give one run id, or files of one run.")
        folder = data_folder(data)
        manifest = folder.resolve_run(inputs[0])
        library = Library(folder)
        try:
            yield Opened(library, manifest)
        finally:
            library.close()
        return
    for path in paths:
        if not path.exists():
            raise UsageError(f"{path} does not exist.")
    with tempfile.TemporaryDirectory(prefix="sawtooth-") as temporary:
        folder = data_folder(data) if keep else DataFolder(Path(temporary)).create()
        library = Library(folder)
        try:
            yield Opened(library, _ingest(folder, paths, keep))
        finally:
            library.close()


def _ingest(folder: DataFolder, paths: list[Path], keep: bool) -> Manifest:
    files: list[tuple[Path, str]] = []
    tolerant = False
    for path in paths:
        found, is_folder = files_of(path)
        tolerant |= is_folder
        files += found
    if not files:
        raise UsageError(f"{paths[0]} holds no trace and no telemetry.")
    brought = bring_in(folder, files, keep_source=keep, tolerant=tolerant)
    for sentence in brought.refused:
        typer.echo(f"Left out {sentence}", err=True)
    for sentence in brought.unplaced:
        typer.echo(sentence, err=True)
    if len(brought.runs) > 1:
        names = ", ".join(run.name for run in brought.runs[:4])
        raise UsageError(f"These files are {len(brought.runs)} runs ({names}). Give the files of one run at a time.")
    return brought.runs[0]
