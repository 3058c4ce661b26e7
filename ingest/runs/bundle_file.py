"""The content of a ``.sawtooth`` file, and its safe reading: all members are checked first.

The only members are ``manifest.json`` (``BundleManifest`` below) and the gzipped sources ``sources/0001.gz``, ``sources/0002.gz`` ….
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from sawtooth.ingest.capture.packing import BUNDLE_FORMAT, COPY_BYTES, MANIFEST_MEMBER, SOURCE_MEMBER, is_bundle
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.manifest import BatchTrial, Interval, Shift, UserFacts
from sawtooth.ingest.source import Limits
from sawtooth.ingest.typed import from_json

__all__ = ["Bundle", "BundleManifest", "BundleRecording", "BundleRun", "is_bundle", "open_bundle"]
MAX_SOURCES = 4096  # The largest jobs that people profile completely have this many ranks.
MAX_MANIFEST_BYTES = 4 << 20  # Each recording needs some hundred bytes, and the notes need space too.
MAX_RUNS = 1000  # The largest sweeps that people share have so many runs.
# Sources are compressed already, so a member that unpacks to more than this times its size may be a zip bomb.
MAX_EXPANSION = 4
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Errors of zipfile for a damaged or forged list of members. Opening also raises OSError, if a member begins before the start of the file.
READING = (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError, KeyError, struct.error, zlib.error)
OPENING = (*READING, OSError)
BROKEN = "The .sawtooth file is damaged or cut off. Copy or export it again."
FORGED = "The .sawtooth file's list of members does not match the content, so the file is damaged or forged. Ask the sender for a new file."


class BundleRecording(msgspec.Struct, frozen=True, omit_defaults=True):
    """One source: its member, file name, kind (a ``RecordingKind``), rank, host and clock corrections."""

    member: str
    source_name: str
    kind: str
    rank: int | None = None
    host: str | None = None
    offset_ns: Shift | None = None
    interval_ns: Interval | None = None


class BundleRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run, as in its manifest."""

    name: str
    recordings: list[BundleRecording]
    notes: str = ""
    tags: list[str] = []
    settings: dict[str, str] = {}
    facts: UserFacts = UserFacts()
    batches: list[BatchTrial] = []
    command: list[str] = []


class BundleManifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the bundle."""

    runs: list[BundleRun]
    format: int = BUNDLE_FORMAT
    tool_version: str = ""


@dataclass(frozen=True)
class Bundle:
    """An open bundle that was checked: its manifest, and its archive of sources."""

    manifest: BundleManifest
    archive: zipfile.ZipFile

    def copy_source(self, member: str, target: Path) -> None:
        """Copy one source (gzipped) to ``target``.

        Raises SourceError if the member is damaged or larger than a source may be.
        """
        remaining = Limits().uncompressed_bytes
        try:
            with _open_member(self.archive, member) as source, target.open("wb") as out:
                while piece := source.read(COPY_BYTES):
                    remaining -= len(piece)
                    if remaining < 0:
                        raise SourceError(
                            "E-SIZE",
                            f"A source in the .sawtooth file is larger than {Limits().uncompressed_bytes >> 30} GB. Profile a shorter time.",
                        )
                    out.write(piece)
        except READING as error:
            raise _unreadable(error) from error


def _open_member(archive: zipfile.ZipFile, member: str) -> IO[bytes]:
    try:
        return archive.open(member)
    except OPENING as error:
        raise _unreadable(error) from error


@contextmanager
def open_bundle(path: Path) -> Iterator[Bundle]:
    """Open and check a bundle.

    Raises SourceError for a file that ``write_bundle`` could not have written.
    """
    try:
        archive = zipfile.ZipFile(path)
    except OPENING as error:
        raise SourceError("E-TRUNC", BROKEN) from error
    with archive:
        infos = archive.infolist()
        names = [info.filename for info in infos]
        sources = [name for name in names if name != MANIFEST_MEMBER]
        are_valid = all(map(SOURCE_MEMBER.fullmatch, sources)) and len(set(names)) == len(names)
        if MANIFEST_MEMBER not in names or not are_valid or len(sources) > MAX_SOURCES:
            raise SourceError(
                "E-TYPE",
                "This zip is not a .sawtooth file: a .sawtooth file has a manifest and sources, and nothing else. Unpack the zip and give its files.",
            )
        if any(info.compress_type not in COMPRESSIONS or info.flag_bits & 1 for info in infos):
            raise SourceError(
                "E-TYPE",
                "The .sawtooth file is encrypted, or packed in a way that Sawtooth does not write. Ask the sender for a new file.",
            )
        if any(info.file_size > MAX_EXPANSION * max(info.compress_size, MAX_MANIFEST_BYTES) for info in infos):
            raise SourceError(
                "E-BOMB",
                "The .sawtooth file unpacks to far more than its size, so it may be a zip bomb and was not read. "
                "Ask the sender for a new file.",
            )
        yield Bundle(_manifest(archive, set(names) - {MANIFEST_MEMBER}), archive)


def _manifest(archive: zipfile.ZipFile, members: set[str]) -> BundleManifest:
    try:
        with _open_member(archive, MANIFEST_MEMBER) as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
        if len(content) > MAX_MANIFEST_BYTES:
            raise SourceError(
                "E-SIZE",
                f"The manifest of the .sawtooth file is larger than {MAX_MANIFEST_BYTES >> 20} MB. Export fewer runs at a time.",
            )
        manifest = from_json(content, BundleManifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(
            "E-JSON", f"The manifest of the .sawtooth file is damaged ({error}). Copy or export it again."
        ) from error
    except READING as error:
        raise _unreadable(error) from error
    if len(manifest.runs) > MAX_RUNS:
        raise SourceError("E-LIMIT", f"The .sawtooth file contains more than {MAX_RUNS} runs. Export fewer at a time.")
    if manifest.format > BUNDLE_FORMAT:
        raise SourceError("E-VER", "The .sawtooth file was written by a newer Sawtooth. Update this Sawtooth to open it.")
    listed = {recording.member for run in manifest.runs for recording in run.recordings}
    if not manifest.runs or not listed <= members or any(not run.recordings for run in manifest.runs):
        raise SourceError("E-TRUNC", "The .sawtooth file lists sources that it does not contain. Export it again.")
    return manifest


def _unreadable(error: Exception) -> SourceError:
    """Return the error for a zip that cannot be read.

    The message of zipfile distinguishes a forged list of members from a truncated file.
    """
    forged = any(word in str(error) for word in ("differ", "Overlapped", "overlap"))
    return SourceError("E-TRUNC", FORGED if forged else BROKEN)
