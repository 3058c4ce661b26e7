"""Name a run by its file or folder if that identifies its recording, else by its script and time."""

from __future__ import annotations

import re
import time
from pathlib import Path

import duckdb

from sawtooth.ingest.database import first_row
from sawtooth.ingest.manifest import RecordingRef
from sawtooth.ingest.schema import DataFolder

HOME = re.compile(r"(?:^|/)(?:(?:home|Users)/[^/]+|root)$")
SUFFIXES = re.compile(r"(?:\.(?:pt|trace|json|jsonl|gz|csv|txt|sqlite|part))+$", re.I)
GENERIC_NAME = re.compile(  # Common names of traces and their folders from scripts, tutorials and machines.
    r"(?:(?:chrome|torch|pytorch|kineto|gpu|my|nsys)[_-]?)?(?:trace|profile|prof|profiler|profiling|marks|nvml|telemetry|report|output|out|log|tb"
    r"|tmp|temp|data|result|plugin|download|desktop|home|mnt|src|code|work|workspace|app|tensorboard)s?(?:[_-]?(?:rank|worker)?[_-]?\d*)"
    r"|(?:rank|worker|gpu|node|step)?[_-]?\d+|tmp\w{8}|\.*"
    r"|runs?|.*[._]\d{10,}",  # torch's default name has the host, the process and the time.
    re.I,
)
RANK_IN_NAME = re.compile(r"rank[-_.]?(\d{1,7})", re.I)
SCRIPT = r"SELECT name FROM names WHERE regexp_matches(name, '^[^<>]+\.py\(\d+\): <module>$') ORDER BY name_id LIMIT 1"
MAX_FOLDERS_UP = 3  # Folders further up describe the machine, not the run.


def identifying_name(path: str) -> str | None:
    """Return a name that identifies a recording: its file's name without suffixes, or its folder's.

    The folder is used if the file has a common name such as ``trace``. The result is None if neither name identifies the recording. A home
    folder has the name of its user, which does not identify a recording.
    """
    folder, _, file = path.replace("\\", "/").rpartition("/")
    if _identifies(name := SUFFIXES.sub("", file)):
        return name
    for _ in range(MAX_FOLDERS_UP):
        if HOME.search(folder):
            return None
        folder, _, name = folder.rpartition("/")
        if _identifies(name):
            return name
    return None


def _identifies(name: str) -> bool:
    return bool(name) and not GENERIC_NAME.fullmatch(name)


def shown_path(path: Path, below: Path | None = None) -> str:
    """Return a file's name, or its path ``below`` a folder, for users.

    If this text does not identify the file, the path starts at the nearest folder with a name that does.
    """
    shown_name = path.relative_to(below).as_posix() if below is not None else path.name
    full = (path.parent.resolve() / path.name).as_posix()
    name = identifying_name(full)
    if identifying_name(shown_name) is not None or name is None:
        return shown_name
    return full[full.rindex(f"/{name}/") + 1 :]


def run_name(folder: DataFolder, refs: list[RecordingRef]) -> str:
    """Return the name of a run of ``refs``, from its trace if it has one."""
    main = _main(refs)
    trace_path = _first(folder, main, "SELECT metadata ->> 'traceName' FROM recording")
    return identifying_name(main.source_name) or identifying_name(trace_path) or _script_and_time(folder, main)


def with_rank(folder: DataFolder, refs: list[RecordingRef], name: str) -> str:
    """Return ``name`` with the rank if ``refs`` have the trace of only one rank of a job."""
    rank = _only_rank(folder, refs)
    return name if rank is None or RANK_IN_NAME.search(name) else f"{name}, rank {rank}"


def _only_rank(folder: DataFolder, refs: list[RecordingRef]) -> int | None:
    """Return the rank of a run with one trace, from the trace or its file name; None for other runs."""
    traces = [ref for ref in refs if ref.kind == "trace"]
    if len(traces) != 1:
        return None
    if _first(folder, traces[0], "SELECT 1 FROM recording WHERE world_size > 1"):
        return traces[0].rank
    ranks = RANK_IN_NAME.findall(traces[0].source_name)
    return int(ranks[-1]) if ranks else None


def with_time(folder: DataFolder, refs: list[RecordingRef], name: str) -> str:
    """Return ``name`` with the recording time of ``refs``, if known, to distinguish runs with one name."""
    return f"{name}, {start}" if (start := _start_time(folder, _main(refs))) else name


def _main(refs: list[RecordingRef]) -> RecordingRef:
    return next((ref for ref in refs if ref.kind == "trace"), refs[0])


def _script_and_time(folder: DataFolder, ref: RecordingRef) -> str:
    """Return the script, or else the kind of recording, with its time, such as train, 21 Nov 14:03:09 UTC."""
    script = _first(folder, ref, SCRIPT).partition("(")[0].rpartition("/")[2].removesuffix(".py")
    return with_time(folder, [ref], script if _identifies(script) else ref.kind)


def _start_time(folder: DataFolder, ref: RecordingRef) -> str:
    first_ns = _first(folder, ref, "SELECT first_ns FROM recording WHERE clock = 'unix'")
    return time.strftime("%d %b %H:%M:%S UTC", time.gmtime(int(first_ns) / 1e9)) if first_ns else ""


def _first(folder: DataFolder, ref: RecordingRef, select: str) -> str:
    """Return the first value of a query on a recording as text; "" if it is missing."""
    try:
        row = first_row(folder.recording_file(ref.id), select)
    except duckdb.Error:
        row = None
    return str(row[0]) if row and row[0] else ""
