"""The recordings that ship with Sawtooth, imported at the first start as examples."""

from __future__ import annotations

import logging
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
log = logging.getLogger("sawtooth")


@dataclass(frozen=True)
class Bundled:
    """One bundled recording: its name, its trace and telemetry files, and the recording of its fix."""

    name: str
    files: tuple[Path, ...]
    fixed_by: str | None = None


class _Fix(msgspec.Struct):
    recording: str


class _Truth(msgspec.Struct):
    fixed_by: list[_Fix] = []


class _Marker(msgspec.Struct):
    imported: list[str]


def bundled_recordings(samples: Path = SAMPLES) -> list[Bundled]:
    """Return the recordings in ``samples``, sorted by name: folders that contain at least a trace."""
    examples = []
    for folder in sorted(p for p in samples.iterdir() if p.is_dir()) if samples.is_dir() else ():
        traces = sorted(folder.glob("*trace.json.gz"))
        if traces:
            examples.append(Bundled(folder.name, (*traces, *sorted(folder.glob("*.jsonl"))), _fixed_by(folder / "truth.json")))
    return examples


def first_pair(manifests: Sequence[Manifest], samples: Path = SAMPLES) -> tuple[Manifest, Manifest] | None:
    """Return the bundled run for new users and the run of its fix; None if either is missing."""
    here = {manifest.name: manifest for manifest in manifests if manifest.bundled}
    for item in bundled_recordings(samples):
        if item.name in here and item.fixed_by in here:
            return here[item.name], here[item.fixed_by]
    return None


def _fixed_by(truth: Path) -> str | None:
    try:
        names = from_json(truth.read_bytes(), _Truth).fixed_by
    except (OSError, msgspec.MsgspecError):
        return None
    return names[0].recording if names else None


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
    fresh = [item for item in bundled_recordings(samples) if item.name not in imported]
    started = []
    now = time.time_ns()
    fixes = [item.fixed_by for item in fresh]
    # First the slow runs, then the runs of their fixes, then the others.
    order = sorted(fresh, key=lambda item: (item.fixed_by is None, item.name not in fixes, item.name))
    for age, item in enumerate(order):
        try:
            copies = [(_copy(path, data.uploads), path.name) for path in item.files]
            # The first job runs alone, because a new user waits for its answer, and a second job would double its time.
            jobs.start(copies, name=item.name, bundled=True, created_ns=now - age, alone=age == 0)
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
