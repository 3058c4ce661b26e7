"""The recordings that ship with Sawtooth: brought in at first start, so that the first screen is never empty."""

from __future__ import annotations

import logging
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

import app
from app.jobs import Jobs
from ingest.errors import SawtoothError
from ingest.schema import DataFolder, write_atomically

SAMPLES = Path(app.__file__).resolve().parents[1] / "sample_traces"
log = logging.getLogger("sawtooth")


@dataclass(frozen=True)
class Bundled:
    """One recording that ships: its folder's name, trace and telemetry files."""

    name: str
    files: tuple[Path, ...]


class _Marker(msgspec.Struct):
    imported: list[str]


def bundled(samples: Path = SAMPLES) -> list[Bundled]:
    """Return the recordings in ``samples``: folders that hold at least a trace, in the order of their names."""
    found = []
    for folder in sorted(p for p in samples.iterdir() if p.is_dir()) if samples.is_dir() else ():
        traces = sorted(folder.glob("*trace.json.gz"))
        if traces:
            found.append(Bundled(folder.name, (*traces, *sorted(folder.glob("*.jsonl")))))
    return found


def import_bundled(jobs: Jobs, data: DataFolder, samples: Path = SAMPLES) -> list[str]:
    """Start a job for every bundled recording this data folder never had; return their names. One that was deleted stays deleted."""
    marker = data.root / "bundled.json"
    try:
        known = set(msgspec.json.decode(marker.read_bytes(), type=_Marker).imported)
    except (OSError, msgspec.MsgspecError):
        known = set()
    fresh = [item for item in bundled(samples) if item.name not in known]
    started = []
    for item in fresh:
        try:
            copies = [(_copy(path, data.uploads), path.name) for path in item.files]
            jobs.start(copies, name=item.name, bundled=True)
            started.append(item.name)
        except (OSError, SawtoothError) as error:
            log.warning("the bundled recording %s could not be brought in: %s", item.name, error)
    if started:
        write_atomically(marker, msgspec.json.encode(_Marker(sorted(known | set(started)))))
    return started


def _copy(path: Path, uploads: Path) -> Path:
    target = uploads / secrets.token_hex(16)
    shutil.copyfile(path, target)
    return target
