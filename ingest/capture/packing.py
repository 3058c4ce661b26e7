"""Write and recognise ``.sawtooth`` bundles.

``sawtooth.ingest.runs.bundle_file`` has the manifest's fields and the reader. Standard library only, because the recorder runs on hosts
without other packages.
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

BUNDLE_FORMAT = 1
MANIFEST_MEMBER = "manifest.json"
SOURCE_MEMBER = re.compile(r"sources/\d{4}\.gz")
ZIP_HEADER_BYTES = 30  # The first member's name follows a header of this length.
COPY_BYTES = 1 << 20  # Files are copied in pieces of this size.
GENERIC_STEMS = ("run", "trace", "sawtooth", "output", "out")  # These file names do not describe a run.
SourceFile = tuple[Path, Mapping[str, Any]]  # A file and its entry in the manifest.
RunSources = tuple[Mapping[str, Any], Sequence[SourceFile]]  # The description of a run, and its files.


def is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle, which is a zip with the manifest as its first member."""
    if not path.is_file():  # Reading a pipe would block, and would remove the content that another process reads.
        return False
    try:
        with path.open("rb") as file:
            head = file.read(ZIP_HEADER_BYTES + len(MANIFEST_MEMBER))
    except OSError:
        return False
    return head.startswith(b"PK\x03\x04") and head[ZIP_HEADER_BYTES:] == MANIFEST_MEMBER.encode()


def pack_run(target: Path, run: Mapping[str, Any], sources: Sequence[SourceFile]) -> None:
    """Write a bundle of one run."""
    pack_runs(target, [(run, sources)])


def pack_runs(target: Path, runs: Sequence[RunSources]) -> None:
    """Write a bundle of several runs."""
    members: dict[str, Path] = {}
    run_entries = []
    for run, sources in runs:
        recordings = []
        for path, entry in sources:
            member = f"sources/{len(members) + 1:04d}.gz"
            members[member] = path
            recordings.append({"member": member, **entry})
        run_entries.append({**run, "recordings": recordings})
    manifest = {"runs": run_entries, "format": BUNDLE_FORMAT, "tool_version": recorder_version()}
    write_archive(target, json.dumps(manifest, indent=1).encode(), members)


def write_archive(target: Path, manifest: bytes, sources: Mapping[str, Path]) -> None:
    """Write a bundle atomically.

    ``sources`` maps members to files. Files that are not gzipped yet are compressed.
    """
    temporary = target.with_name(f".{target.name}.part")
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(MANIFEST_MEMBER), manifest)
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


def make_scratch_folder(target: Path) -> Path:
    """Create a folder for the parts of a recording, beside the future file ``target``.

    If ``target``'s folder is not writable, the folder is among the system's temporary files. It remains if the job is killed, so that the
    parts can be ingested later.
    """
    with contextlib.suppress(OSError):
        return Path(tempfile.mkdtemp(prefix=f"{target.stem}-recording-", dir=target.parent))
    return Path(tempfile.mkdtemp(prefix="sawtooth-"))


def name_from_file(file: Path | None) -> str:
    """Return the run's name from the chosen file, or "" for a generic name such as ``run.sawtooth``."""
    name = file.name.removesuffix(".sawtooth") if file is not None else ""
    return "" if name.lower() in GENERIC_STEMS else name
