"""A data folder with an old run, a new trace to ingest, and the conditions after any fault."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.runs.card import card_of
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.files import is_sound, remove_all_abandoned_drafts
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.runs.recordings import LOCK_FILE
from sawtooth.ingest.schema import DRAFT_PREFIX, DataFolder
from tests.support import sound_trace
from tests.support.paths import ROOT

# The work of an ingest job, in a process that kills itself before or after its n-th rename (0: never).
CHILD = """
import os, resource, signal, sys
from pathlib import Path
trace, data, at, after, most_bytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "after", int(sys.argv[5])
most_files = int(sys.argv[6])
if most_bytes:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
calls, replace = [0], Path.replace
def counted(self, target):
    calls[0] += 1
    if calls[0] == at and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    result = replace(self, target)
    if calls[0] == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
Path.replace = counted
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.runs.card import card_of
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.schema import DataFolder
if most_files:
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
folder = DataFolder(Path(data))
try:
    (run,) = ingest_into_runs(folder, [(trace, trace.name)]).runs
    print("derived", flush=True)
    card_of(run, Library(folder))
    print(run.id, calls[0])
except SawtoothError as error:
    print(error.code)
"""


def trace_in(path: Path, steps: int) -> Path:
    path.write_bytes(gzip.compress(sound_trace.text(sound_trace.sound(sound_trace.sound_events(steps))), mtime=0))
    return path


def ingest(folder: DataFolder, trace: Path) -> Manifest:
    """Ingest a trace in this process."""
    library = Library(folder)
    (run,) = ingest_into_runs(folder, [(trace, trace.name)]).runs
    card_of(run, library)
    library.close()
    return run


def start(
    trace: Path, folder: DataFolder, at: int = 0, when: str = "before", most_bytes: int = 0, most_files: int = 0
) -> subprocess.Popen[str]:
    """Ingest a trace in a separate process."""
    command = [sys.executable, "-c", CHILD, str(trace), str(folder.root), str(at), when, str(most_bytes), str(most_files)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder.root
    )


def numbers(folder: DataFolder, run: str, library: Library | None = None) -> dict[str, Any]:
    used_library = library or Library(folder)
    try:
        return dict(json.loads(json.dumps(report_json(analyse(folder.read_manifest(run), used_library)))))
    finally:
        if library is None:
            used_library.close()


def leftovers(folder: DataFolder) -> list[str]:
    """Return the files in the data folder that belong to no run or recording."""
    kinds = {
        "recordings": ".v1.duckdb",
        "derived": (".duckdb", "card.msgpack", "result.msgpack"),
        "sources": ".json.gz",
        "runs": ".json",
        "access": "",
    }
    found: list[str] = []
    own = [folder.root / name for name in ("bundled.json", "push_token", "token", LOCK_FILE)]
    for path in (path for path in folder.root.rglob("*") if path not in own):
        kind = kinds.get(path.parent.name)
        if path.is_file() and (kind is None or not path.name.endswith(kind) or path.name.startswith(".")):
            found.append(str(path.relative_to(folder.root)))
        elif path.is_dir() and path.name.startswith(DRAFT_PREFIX):
            found.append(path.name)
    return found


def check_complete(folder: DataFolder) -> None:
    """Check that all published items are complete and that no other files remain.

    Temporary files are first removed, as a server does when it starts.
    """
    remove_all_abandoned_drafts(folder, older_than_s=0)
    assert leftovers(folder) == [], leftovers(folder)
    for place in (folder.recordings, folder.derived):
        assert all(is_sound(path) for path in place.glob("*.duckdb"))
    for path in folder.sources.iterdir():
        assert gzip.decompress(path.read_bytes())
    for path in folder.runs.iterdir():
        assert all(folder.recording_file(ref.id).exists() for ref in folder.read_manifest(path.stem).recordings)


def has_run(folder: DataFolder, run: str) -> bool:
    try:
        return folder.read_manifest(run).id == run
    except NotFoundError:
        return False


@contextmanager
def small_disk(place: Path, size: int) -> Iterator[Path]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def bytes_in(folder: Path, but: str) -> int:
    """Return the disk space of the files in ``folder``, except files whose names end with ``but``."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if not path.name.endswith(but))
