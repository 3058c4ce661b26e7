"""Packing of ``.sawtooth`` files.

It needs only the standard library, because the recorder runs where nothing else is installed.

See ``sawtooth.ingest.runs.bundle_file`` for what the manifest says and how such a file is read.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from sawtooth.installation import recorder_version

FORMAT = 1
MANIFEST = "manifest.json"
SOURCE = re.compile(r"sources/\d{4}\.gz")
COPY_BYTES = 1 << 20
SAY_NOTHING = ("run", "trace", "sawtooth", "output", "out")  # as a file's name


def is_bundle(path: Path) -> bool:
    """Tell from its content whether a file is a bundle: a zip whose first member is the manifest."""
    if not path.is_file():  # a pipe would wait, and can be read only once
        return False
    try:
        with path.open("rb") as file:
            head = file.read(30 + len(MANIFEST))
    except OSError:
        return False
    return head.startswith(b"PK\x03\x04") and head[30:] == MANIFEST.encode()


def pack_run(target: Path, run: Mapping[str, Any], sources: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
    """Write a bundle of one run: its description and its files, each with its manifest entry."""
    pack_runs(target, [(run, sources)])


def pack_runs(target: Path, runs: Sequence[tuple[Mapping[str, Any], Sequence[tuple[Path, Mapping[str, Any]]]]]) -> None:
    """Write a bundle of several runs, each as in ``pack_run``."""
    members: dict[str, Path] = {}
    described = []
    for run, sources in runs:
        recordings = []
        for path, about in sources:
            member = f"sources/{len(members) + 1:04d}.gz"
            members[member] = path
            recordings.append({"member": member, **about})
        described.append({**run, "recordings": recordings})
    manifest = {"runs": described, "format": FORMAT, "tool_version": recorder_version()}
    pack(target, json.dumps(manifest, indent=1).encode(), members)


def pack(target: Path, manifest: bytes, sources: Mapping[str, Path]) -> None:
    """Write a bundle completely or not at all.

    ``sources`` maps members to files. Files that are not gzipped yet are compressed.
    """
    temporary = target.with_name(f".{target.name}.part")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(MANIFEST), manifest)
            for member in sorted(sources):
                with archive.open(zipfile.ZipInfo(member), "w", force_zip64=True) as out:
                    _copy_gzipped(sources[member], out)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _copy_gzipped(source: Path, out: IO[bytes]) -> None:
    with source.open("rb") as file:
        gzipped = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if gzipped:
            shutil.copyfileobj(file, out, COPY_BYTES)
        else:
            with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=6, mtime=0) as packed:
                shutil.copyfileobj(file, packed, COPY_BYTES)


def folder_beside(wanted: Path) -> Path:
    """Return a new folder for the parts, beside the future file or else in the temporary folder.

    The folder remains if the job is killed.
    """
    with contextlib.suppress(OSError):
        return Path(tempfile.mkdtemp(prefix=f"{wanted.stem}-recording-", dir=wanted.parent))
    return Path(tempfile.mkdtemp(prefix="sawtooth-"))


def name_by(file: Path | None) -> str:
    """Return the run's name from the chosen file, or "" if the file's name says nothing."""
    name = file.name.removesuffix(".sawtooth") if file is not None else ""
    return "" if name.lower() in SAY_NOTHING else name
