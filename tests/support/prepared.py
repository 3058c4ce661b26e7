"""Runs that many tests look at: brought in and analysed once per process, then copied into each test's own data folder."""

from __future__ import annotations

import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

import msgspec

from sawtooth.analysis.kept import result_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.intake import bring_in
from sawtooth.ingest.schema import DataFolder, Manifest

_PLACE = tempfile.TemporaryDirectory(prefix="sawtooth-prepared-")  # gone with the process


def prepared(data: DataFolder, *paths: Path, name: str | None = None) -> Manifest:
    """Return the run that ``paths`` make, in ``data``, analysed as the child of an upload leaves it: newer than the runs that are there."""
    made, run = _made(tuple((path.name, path.read_bytes()) for path in paths), name)
    shutil.copytree(made, data.root, dirs_exist_ok=True)
    manifest = msgspec.structs.replace(data.read_manifest(run), created_ns=time.time_ns())
    data.write_manifest(manifest)
    return manifest


@cache
def _made(files: tuple[tuple[str, bytes], ...], name: str | None) -> tuple[Path, str]:
    """Bring the files in, told by their names and content, and return the data folder and the run."""
    place = Path(tempfile.mkdtemp(dir=_PLACE.name))
    folder = DataFolder(place / "data").create()
    (place / "given").mkdir()
    for file, content in files:
        (place / "given" / file).write_bytes(content)
    (run,) = bring_in(folder, [(place / "given" / file, file) for file, _ in files], name=name).runs
    library = Library(folder)
    result_of(run, library)
    library.close()
    return folder.root, run.id
