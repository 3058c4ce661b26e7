"""The recordings that ship with Sawtooth, imported at the first start as examples."""

from __future__ import annotations

import logging
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sawtooth.app.jobs.job_files import UNREADABLE
from sawtooth.app.jobs.queue import Jobs
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.manifest import Manifest
from sawtooth.ingest.schema import DataFolder, write_atomically
from sawtooth.ingest.typed import from_json

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
_WORKERS = re.compile(r"'num_workers': (\d+)")  # The loader's arguments are recorded as Python code.
log = logging.getLogger("sawtooth")


@dataclass(frozen=True)
class BundledRecording:
    """One bundled recording: its name, its files, the recording of its fix, and its settings as tags."""

    name: str
    files: tuple[Path, ...]
    fixed_by: str | None = None
    tags: tuple[str, ...] = ()


class _Fix(msgspec.Struct):
    recording: str


class _Truth(msgspec.Struct):
    fixed_by: list[_Fix] = []
    cfg: dict[str, object] = {}


class _Marker(msgspec.Struct):
    imported: list[str]


def bundled_recordings(samples: Path = SAMPLES) -> list[BundledRecording]:
    """Return the folders in ``samples`` that contain a trace, sorted by name."""
    if not samples.is_dir():
        return []
    examples = []
    for folder in sorted(path for path in samples.iterdir() if path.is_dir()):
        if traces := sorted(folder.glob("*trace.json.gz")):
            truth, files = _truth(folder / "truth.json"), (*traces, *sorted(folder.glob("*.jsonl")))
            fix = truth.fixed_by[0].recording if truth.fixed_by else None
            workers = _WORKERS.search(str(truth.cfg.get("loader", "")))
            examples.append(BundledRecording(folder.name, files, fix, (f"workers={workers[1]}",) if workers else ()))
    return examples


def first_pair(manifests: Sequence[Manifest], samples: Path = SAMPLES) -> tuple[Manifest, Manifest] | None:
    """Return the bundled run for new users and the run of its fix; None if either is missing."""
    examples = {manifest.name: manifest for manifest in manifests if manifest.bundled}
    for item in bundled_recordings(samples):
        if item.name in examples and item.fixed_by in examples:
            return examples[item.name], examples[item.fixed_by]
    return None


def _truth(file: Path) -> _Truth:
    try:
        return from_json(file.read_bytes(), _Truth)
    except (OSError, msgspec.MsgspecError):
        return _Truth()


def import_bundled(jobs: Jobs, data: DataFolder, samples: Path = SAMPLES, *, again: bool = False) -> list[str]:
    """Start a job for each bundled recording that this data folder never had; return their names.

    With ``again``, deleted recordings are imported again.
    """
    marker = data.root / "bundled.json"
    try:
        imported = set(from_json(marker.read_bytes(), _Marker).imported)
    except (OSError, *UNREADABLE):
        imported = set()
    if again:
        imported &= {manifest.name for manifest in data.manifests() if manifest.bundled}
    missing = [item for item in bundled_recordings(samples) if item.name not in imported]
    started = []
    now = time.time_ns()
    fixes = [item.fixed_by for item in missing]
    # First the runs with a fix, then the runs of the fixes, then the others.
    order = sorted(missing, key=lambda item: (item.fixed_by is None, item.name not in fixes, item.name))
    for index, item in enumerate(order):
        try:
            copies = [(_copy(path, data.uploads), path.name) for path in item.files]
            # The first job runs alone, because a new user waits for its answer, and a second job would double the waiting time.
            jobs.start(copies, name=item.name, bundled=True, created_ns=now - index, alone=index == 0, tags=item.tags)
            started.append(item.name)
        except (OSError, SawtoothError) as error:
            log.warning("the bundled recording %s could not be imported: %s", item.name, error)
    if started:
        write_atomically(marker, msgspec.json.encode(_Marker(sorted(imported | set(started)))))
    return started


def _copy(path: Path, uploads: Path) -> Path:
    target = uploads / secrets.token_hex(16)
    shutil.copyfile(path, target)
    return target
