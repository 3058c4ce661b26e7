"""Fetch and store the baseline of a build: in a file, a folder, an object store or an artifact."""

from __future__ import annotations

import zipfile
from pathlib import Path

from sawtooth.analysis.cluster.storage import storage_at
from sawtooth.app.reports.github import Job
from sawtooth.ingest.errors import NotFoundError, UsageError

ARTIFACT = "artifact:"
SUFFIX = ".sawtooth"
MAX_FILES_IN_ARTIFACT = 100  # At most this many files of an artifact are read.


def fetch_baseline(location: str, name: str, to: Path) -> Path | None:
    """Return a local file with the baseline ``name`` at ``location``; None if there is none yet.

    ``location`` is a bundle, a folder, s3://…, gs://…, az://… or artifact:NAME. ``to`` is a folder for copies. Raises SawtoothError if
    the location cannot be read.
    """
    if location.startswith(ARTIFACT):
        return _from_artifact(location.removeprefix(ARTIFACT), name, to)
    if _is_file(location):
        path = Path(location).expanduser()
        return path if path.is_file() else None
    try:
        return storage_at(location).fetch(f"{name}{SUFFIX}", to / f"{name}{SUFFIX}")
    except NotFoundError:
        return None


def store_baseline(bundle: Path, location: str, name: str) -> str:
    """Store ``bundle`` as the baseline at once, so that no reader gets a part; return its location.

    Raises UsageError for an artifact, because only a step of the workflow can upload one.
    """
    if location.startswith(ARTIFACT):
        raise UsageError("Only the workflow can upload an artifact. Use Sawtooth's action, or actions/upload-artifact.")
    if _is_file(location):
        path = Path(location).expanduser().absolute()
        location, name = str(path.parent), path.name.removesuffix(SUFFIX)
    target = storage_at(location)
    target.write(f"{name}{SUFFIX}", bundle.read_bytes())
    return f"{target.url}/{name}{SUFFIX}"


def _is_file(location: str) -> bool:
    """Return whether ``location`` is a file, or has the suffix of one."""
    return "://" not in location and (location.endswith(SUFFIX) or Path(location).expanduser().is_file())


def _from_artifact(artifact: str, name: str, to: Path) -> Path | None:
    job = Job.of_environment()
    if job is None:
        raise UsageError("artifact: needs GITHUB_TOKEN and GITHUB_REPOSITORY, as a GitHub workflow sets them.")
    packed = job.newest_artifact(artifact, to / "artifact.zip")
    if packed is None:
        return None
    with zipfile.ZipFile(packed) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(SUFFIX)][:MAX_FILES_IN_ARTIFACT]
        chosen = next((m for m in members if Path(m.filename).name == f"{name}{SUFFIX}"), members[0] if members else None)
        if chosen is None:
            raise NotFoundError(f"The artifact {artifact} contains no {SUFFIX} file.")
        target = to / f"{name}{SUFFIX}"
        target.write_bytes(archive.read(chosen))
    return target
