"""The Sawtooth version that recorded a file.

A newer recorder may write data that this Sawtooth ignores.
"""

from __future__ import annotations

import re

import duckdb
import msgspec

from sawtooth.ingest.database import first_row
from sawtooth.ingest.errors import NotFoundError
from sawtooth.ingest.manifest import RecordingRef
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.typed import from_json
from sawtooth.ingest.writer import tool_version

_RELEASE = re.compile(r"\d{1,9}(?:\.\d{1,9}){0,3}")


class _Metadata(msgspec.Struct):
    recorder: str | None = None


def recorder_version_of(folder: DataFolder, ref: RecordingRef) -> str:
    """Return the version that recorded telemetry or marks; "" if the file does not name the version.

    Raises NotFoundError if the recording is missing or damaged.
    """
    if ref.kind == "trace":
        return ""
    try:
        row = first_row(folder.recording_file(ref.id), "SELECT metadata FROM recording")
    except duckdb.Error as error:
        raise NotFoundError(f"The recording {ref.source_name} is missing or damaged.") from error
    try:
        return from_json(row[0], _Metadata).recorder or "" if row and row[0] else ""
    except msgspec.MsgspecError:
        return ""


def too_new(recorder: str, here: str | None = None) -> str | None:
    """Return a message if ``recorder`` is a later release than this Sawtooth (``here``), else None.

    The result is also None if one of the versions is unknown.
    """
    recorder_release, this_release = _release(recorder), _release(here or tool_version())
    if not any(this_release) or recorder_release <= this_release:
        return None
    return f"it was recorded by Sawtooth {recorder[:20]}, but this is {here or tool_version()}, which ignores newer data. Update Sawtooth."


def _release(version: str) -> tuple[int, ...]:
    match = _RELEASE.match(version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()
