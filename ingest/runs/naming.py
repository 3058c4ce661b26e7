"""What a run is called: after the file, else the folder, that tells its recording from others."""

from __future__ import annotations

import re

import duckdb

from sawtooth.ingest.database import first_row
from sawtooth.ingest.manifest import RecordingRef
from sawtooth.ingest.schema import DataFolder

HOME = re.compile(r"(?:^|/)(?:(?:home|Users)/[^/]+|root)$")
SUFFIXES = re.compile(r"(?:\.(?:pt|trace|json|jsonl|gz|csv|txt))+$", re.I)
SAYS_NOTHING = re.compile(  # what scripts and tutorials call every trace and the folder it lies in
    r"(?:(?:chrome|torch|pytorch|kineto|gpu|my)[_-]?)?(?:trace|traces|profile|profiler|profiling|prof|nvml|telemetry|output|out|log|logs|tmp|data|results)"
    r"(?:[_-]?\d*)|(?:rank|worker|gpu|node)?[_-]?\d+|tmp\w{8}|\.*",
    re.I,
)


def telling_name(path: str) -> str | None:
    """Return what tells a recording from others: its file's name without suffixes, or its folder's where the file is called ``trace`` or so.

    None where neither says anything; a home folder's name is its user's and says nothing of a recording.
    """
    folder, _, file = path.replace("\\", "/").rpartition("/")
    names = (SUFFIXES.sub("", file), HOME.sub("/", folder).rpartition("/")[2])
    return next((name for name in names if name and not SAYS_NOTHING.fullmatch(name)), None)


def name_of(folder: DataFolder, refs: list[RecordingRef]) -> str:
    """Return the name of a run of ``refs``: its trace's, where it has one."""
    main = next((ref for ref in refs if ref.kind == "trace"), refs[0])
    stem = SUFFIXES.sub("", main.source_name) or main.source_name
    return telling_name(main.source_name) or telling_name(_trace_name(folder, main)) or stem


def _trace_name(folder: DataFolder, ref: RecordingRef) -> str:
    """Return the path that the profiler wrote the trace to, "" where it is not known."""
    try:
        row = first_row(folder.recording_file(ref.id), "SELECT metadata ->> 'traceName' FROM recording")
    except duckdb.Error:
        row = None
    return str(row[0]) if row and row[0] else ""
