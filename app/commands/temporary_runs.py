"""Files that a command reads without storing them as runs, cached for the next command.

Each set of files has a folder inside the data folder. This folder is a data folder too, with only the runs of these files. The
least recently used folders are deleted if all folders together exceed MAX_BYTES.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from sawtooth.analysis.version import TOOL_VERSION
from sawtooth.app.jobs.ingest_files import IngestedFiles
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import SCHEMA_VERSION, DataFolder
from sawtooth.ingest.typed import from_json

CACHE_FOLDER = "read"
COMPLETE_FILE = "read.json"  # This file is written last, so a folder that contains it is complete.
MAX_BYTES = 1_000_000_000  # The files of a few large traces fit into this limit.
MAX_INCOMPLETE_AGE_S = 86_400  # An older incomplete folder is a leftover of a killed command.


class TemporaryRuns(msgspec.Struct, frozen=True):
    """The ids of the runs of a set of files, and the messages from reading (as in ``IngestedFiles``)."""

    runs: tuple[str, ...]
    refused: tuple[str, ...]
    notices: tuple[str, ...]


class FilesRead(NamedTuple):
    """The data folder with the runs of a set of files, the runs, and the messages from reading the files."""

    folder: DataFolder
    runs: list[Manifest]
    read: TemporaryRuns


@contextmanager
def files_read(
    root: Path, files: Sequence[tuple[Path, str]], read: Callable[[DataFolder], IngestedFiles]
) -> Iterator[FilesRead]:
    """Yield the runs of ``files`` (path, display name), from the cache or read by ``read``.

    Nothing is cached if the data folder ``root`` cannot be written.
    """
    cache_folder = root / CACHE_FOLDER
    target = cache_folder / _key(files)
    cached = _cached_runs(target)
    if cached is not None:
        with suppress(OSError):  # The folder may belong to another user.
            os.utime(target)
        try:
            yield cached
        except BaseException:  # The cache may be damaged, so the next command reads the files again.
            shutil.rmtree(target, ignore_errors=True)
            raise
        return
    try:
        DataFolder(root).create()
        cache_folder.mkdir(mode=0o700, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".", dir=cache_folder))
    except OSError:
        with tempfile.TemporaryDirectory(prefix="sawtooth-") as temporary:
            yield _runs_in(Path(temporary), read)
        return
    try:
        runs = _runs_in(draft, read)
        yield runs
        (draft / COMPLETE_FILE).write_bytes(msgspec.json.encode(runs.read))
        shutil.rmtree(target, ignore_errors=True)
        draft.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        _make_room(cache_folder)


def _key(files: Sequence[tuple[Path, str]]) -> str:
    """Return a hash of the files' contents and names, and of the version that reads them."""
    parts = [TOOL_VERSION, str(SCHEMA_VERSION)]
    for path, name in files:
        with path.open("rb") as content:
            parts += [name, hashlib.file_digest(content, "sha256").hexdigest()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _runs_in(run_folder: Path, read: Callable[[DataFolder], IngestedFiles]) -> FilesRead:
    folder = DataFolder(run_folder).create()
    ingested = read(folder)
    messages = TemporaryRuns(tuple(run.id for run in ingested.runs), tuple(ingested.refused), tuple(ingested.notices))
    return FilesRead(folder, ingested.runs, messages)


def _cached_runs(target: Path) -> FilesRead | None:
    """Return the runs that an earlier command cached; None if they are missing or incomplete."""
    folder = DataFolder(target)
    try:
        cached = from_json((target / COMPLETE_FILE).read_bytes(), TemporaryRuns)
        return FilesRead(folder, [folder.read_manifest(run) for run in cached.runs], cached)
    except (OSError, msgspec.MsgspecError, SawtoothError):
        return None


def _make_room(cache_folder: Path) -> None:
    """Delete the least recently used folders until MAX_BYTES are left, and leftovers of killed commands."""
    folders: list[tuple[float, int, Path]] = []  # Time of the last use, bytes and path.
    for path in cache_folder.iterdir():
        try:
            used_s = path.stat().st_mtime
            if path.name.startswith("."):
                if time.time() - used_s > MAX_INCOMPLETE_AGE_S:
                    shutil.rmtree(path, ignore_errors=True)
                continue
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            folders.append((used_s, size, path))
        except OSError:
            continue  # Another command is deleting the folder.
    total_bytes = sum(size for _, size, _ in folders)
    for _, size, path in sorted(folders, key=lambda folder: folder[0]):
        if total_bytes <= MAX_BYTES:
            return
        shutil.rmtree(path, ignore_errors=True)
        total_bytes -= size
