"""Runs that many tests use, analysed once per test run and copied into each test's data folder."""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

import msgspec

from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder
from tests.support import sound_trace
from tests.support.common_folder import common_folder, one_process_at_a_time


def prepared(data: DataFolder, *paths: Path, name: str | None = None) -> Manifest:
    """Return the run of ``paths`` in ``data``, analysed as after an upload.

    It is newer than the runs that are already there.
    """
    made, run = _made(tuple((path.name, path.read_bytes()) for path in paths), name)
    shutil.copytree(made, data.root, dirs_exist_ok=True)
    manifest = msgspec.structs.replace(data.read_manifest(run), created_ns=time.time_ns())
    data.write_manifest(manifest)
    return manifest


def prepared_result(*paths: Path) -> RunResult:
    """Return the analysis of the run of the files ``paths``."""
    made, run = _made(tuple((path.name, path.read_bytes()) for path in paths), None)
    library = Library(DataFolder(made))
    result = result_of(library.folder.read_manifest(run), library)
    library.close()
    return result


def folder_with_sound_run(scratch: Path) -> DataFolder:
    """Return a data folder below ``scratch`` with the run of one small intact trace.

    The trace is ingested but not analysed.
    """
    trace = scratch / "one.json"
    trace.write_bytes(sound_trace.text(sound_trace.sound()))
    folder = DataFolder(scratch / "data").create()
    ingest_into_runs(folder, [(trace, trace.name)])
    return folder


def _made(files: tuple[tuple[str, bytes], ...], name: str | None) -> tuple[Path, str]:
    """Ingest the files and return the data folder and the run.

    Files with the same names and content are ingested only once.
    """
    key = hashlib.sha256(repr((files, name)).encode()).hexdigest()[:16]
    place = common_folder() / f"prepared-{key}"
    marker = place / "run"  # It is written last.
    with one_process_at_a_time(place.name):
        if not marker.exists():
            shutil.rmtree(place, ignore_errors=True)  # A test that failed halfway may have left files here.
            (place / "files").mkdir(parents=True)
            marker.write_text(_bring(place, files, name), encoding="utf-8")
    return place / "data", marker.read_text(encoding="utf-8")


def _bring(place: Path, files: tuple[tuple[str, bytes], ...], name: str | None) -> str:
    folder = DataFolder(place / "data").create()
    for file, content in files:
        (place / "files" / file).write_bytes(content)
    (run,) = ingest_into_runs(folder, [(place / "files" / file, file) for file, _ in files], name=name).runs
    library = Library(folder)
    result_of(run, library)
    library.close()
    return run.id
