"""Sums of a large recording that only screens read, in a separate file next to the derived file.

The first answer does not wait for them. The tables in this file have the same names as views of the derived file and come first in
the search path. Without this file, queries give the same rows, but more slowly.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from sawtooth.analysis.derive.build import MEMORY_MB, ensure_derived, memory_limit
from sawtooth.analysis.derive.layout import MAX_EVENTS_WITHOUT_SUMS, events_of, sum_statements
from sawtooth.ingest.database import CORES, attach_new, quote, read_rows, take_connection
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.files import commit, draft_file
from sawtooth.ingest.schema import DataFolder

# Earlier versions stored the sums in the derived file.
_STORED_WITHIN = "SELECT 1 FROM duckdb_tables() WHERE table_name = 'lane_sums'"
_ORDER = {
    "lane_sums": "source, cell, device, lane, depth",
    "name_sums": "source, device, cell",
    "long_slices": "source, start_ns",
}


def sums_file(derived: Path) -> Path:
    """Return the path of the sums that belong to a derived file."""
    return derived.with_suffix(".sums.duckdb")


def ensure_sums(folder: DataFolder, recording_id: str) -> Path | None:
    """Return the file of a recording's sums, built if it is missing; None if the derived file is enough.

    The result is also None if the file cannot be written. Raises the same errors as ``ensure_derived``.
    """
    derived = ensure_derived(folder, recording_id)
    target = sums_file(derived)
    if target.exists():
        return target
    source = folder.recording_file(recording_id)
    try:
        ((events, operations),) = read_rows(source, f"SELECT {events_of()}, (SELECT count(*) FROM gpu_ops)")
        if events <= MAX_EVENTS_WITHOUT_SUMS or read_rows(derived, _STORED_WITHIN):
            return None
        with draft_file(target.parent) as temporary:
            _write(source, derived, temporary, memory_limit(operations))
            commit(temporary, target)
        if not source.exists():  # The run was deleted in the meantime. A deletion removes the recording first.
            target.unlink(missing_ok=True)
    # The disk is full, the folder is read-only, or the recording is gone. A damaged recording is reported by its next reader.
    except (SourceError, duckdb.Error):
        return None
    return target if target.exists() else None


def _write(recording: Path, derived: Path, temporary: Path, limit: str) -> None:
    con = take_connection(f"{MEMORY_MB}MB", temporary.parent)
    try:
        con.execute(f"ATTACH '{quote(recording)}' AS r (READ_ONLY); ATTACH '{quote(derived)}' AS d (READ_ONLY)")
        attach_new(con, temporary, "s", "", "s.main,r.main,d.main")
        con.execute(f"SET memory_limit = '{limit}'; SET threads = {CORES}")
        for table, select in sum_statements().items():
            con.execute(f"CREATE TABLE s.{table} AS {select}{f' ORDER BY {_ORDER[table]}' if table in _ORDER else ''}")
        con.execute("USE memory; CHECKPOINT s; DETACH s")
    finally:
        con.close()
