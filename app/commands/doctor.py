"""``sawtooth doctor``: read the whole data folder, and report damaged, missing or unprotected files."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sawtooth.analysis.cluster.summary_file import is_intact
from sawtooth.analysis.cluster.tables import NOT_HERE
from sawtooth.app import format as fmt
from sawtooth.app.commands.names import data_folder, data_root
from sawtooth.app.commands.output import DataOption, say
from sawtooth.app.printable import json_text
from sawtooth.app.settings import settings_from
from sawtooth.ingest.capture.command.parts import PARTS_LEFT, abandoned_folders
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.files import is_sound
from sawtooth.ingest.manifest import is_id
from sawtooth.ingest.schema import DataFolder

PIECE_BYTES = 1 << 20  # Sources are read in pieces of this size.
MIN_FREE_BYTES = 2_000_000_000  # A large trace and its recording need about this much space.


def doctor(
    data: DataOption = None, as_json: Annotated[bool, typer.Option("--json", help="Print the problems as JSON.")] = False
) -> None:
    """Check the data folder and the settings; the exit code is 1 if something is wrong."""
    settings_from(dict(os.environ))
    root = data_root(data)
    if not root.is_dir():
        leftovers = "".join(f" {sentence}" for sentence in _killed_runs())
        raise NotFoundError(f"There is no data folder {root} yet. sawtooth ingest and sawtooth serve create it.{leftovers}")
    folder = data_folder(data)
    checks = (_access_problems, _irregular_files, _manifest_problems, _recording_problems, _source_problems)
    problems = [problem for check in checks for problem in check(folder)]
    problems += _killed_runs()
    runs, free = len(folder.manifests()), shutil.disk_usage(folder.root).free
    if as_json:
        say(json_text({"folder": str(folder.root), "runs": runs, "free_bytes": free, "problems": problems}, 1))
        raise typer.Exit(1 if problems else 0)
    for problem in problems:
        say(problem)
    say(f"{folder.root}: {fmt.many(runs, 'run')}, {fmt.bytes_(free)} free, {fmt.many(len(problems), 'problem')}.")
    raise typer.Exit(1 if problems else 0)


def _access_problems(folder: DataFolder) -> Iterator[str]:
    if os.name == "posix" and stat.S_IMODE(folder.root.stat().st_mode) & 0o077:
        yield f"Other users of this machine can read the data folder. To prevent it: chmod 700 {folder.root}"
    if not os.access(folder.root, os.W_OK):
        yield "The data folder cannot be written, so no new file can be ingested."
    if shutil.disk_usage(folder.root).free < MIN_FREE_BYTES:
        yield "The disk is almost full. `sawtooth runs prune --max-size 20GB` removes old runs."


def _killed_runs() -> Iterator[str]:
    for folder in abandoned_folders():
        yield PARTS_LEFT.format(folder=folder)


def _irregular_files(folder: DataFolder) -> Iterator[str]:
    for path in sorted(folder.root.rglob("*")):
        if not path.is_dir() and not path.is_file():
            yield f"{path} is a pipe, a device or a broken link. Sawtooth does not create these. Remove it."


def _files(place: Path, pattern: str) -> list[Path]:
    return sorted(path for path in place.glob(pattern) if path.is_file())


def _manifest_problems(folder: DataFolder) -> Iterator[str]:
    for path in sorted(folder.runs.glob("*.json")):
        if not is_id(path.stem):
            continue
        try:
            manifest = folder.read_manifest(path.stem)
        except NotFoundError as error:
            yield f"Run {path.stem}: {error}"
            continue
        if manifest.summaries and not folder.summaries_file(manifest.summaries).exists():
            yield f"{fmt.clean(manifest.name, 60)} ({manifest.id}): {NOT_HERE}"
        for ref in manifest.recordings:
            if not folder.recording_file(ref.id).exists():
                has_source = folder.source_file(ref.id).exists()
                advice = "Its source is stored, so open the run once." if has_source else "Ingest its file again."
                yield f"{fmt.clean(manifest.name, 60)} ({manifest.id}): the recording {ref.id} is missing. {advice}"


def _recording_problems(folder: DataFolder) -> Iterator[str]:
    for path in _files(folder.recordings, "*.duckdb"):
        if not is_sound(path):
            yield f"The recording {path.name} is damaged. Remove its run and ingest its source again."
    for path in _files(folder.recordings, "*.summaries.parquet"):
        if not is_intact(path):
            yield f"The summaries {path.name} are damaged. Run sawtooth reduce again to rebuild them."
    for path in _files(folder.derived, "*.duckdb"):
        if not is_sound(path):
            yield f"The cache {path.name} is damaged. Remove the file. Sawtooth creates it again."


def _source_problems(folder: DataFolder) -> Iterator[str]:
    for path in _files(folder.sources, "*.gz"):
        try:
            with gzip.open(path) as source:
                while source.read(PIECE_BYTES):
                    pass
        except (OSError, EOFError, zlib.error):
            yield f"The stored source {path.name} is damaged. The run can be shown, but not exported."
