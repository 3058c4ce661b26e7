"""Build a recording's derived file: steps, ledger, gaps with causes, rollups. Rebuilt whole, published by rename."""

from __future__ import annotations

from pathlib import Path

import duckdb

from sawtooth.analysis.derive.deriving import MEMORY_MB, Deriving
from sawtooth.analysis.derive.layout import FEW_EVENTS, events_of, layout_of
from sawtooth.analysis.derive.storing import Storing
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.ingest.database import attach_new, borrow, give_back, quoted
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.files import commit, draft, is_sound
from sawtooth.ingest.schema import DataFolder


def ensure_derived(folder: DataFolder, recording_id: str) -> Path:
    """Return the recording's derived file, building it when it is missing; older versions are removed.

    Raises NotFoundError when the recording is missing, SawtoothError when its file is damaged or the disk is full.
    """
    target = folder.derived_file(recording_id, ANALYSIS_VERSION)
    if not target.exists():
        source = folder.recording_file(recording_id)
        if not source.exists():
            raise NotFoundError(f"Recording {recording_id} is not in this data folder. Ingest its source again.")
        try:
            derive(source, target)
        except (SawtoothError, duckdb.Error) as error:  # a full disk and a damaged file raise the same: the file itself tells
            if is_sound(source):
                raise
            raise damaged(recording_id) from error
        for old in folder.derived.glob(f"{recording_id}.*.duckdb"):
            if old != target:
                old.unlink(missing_ok=True)
    return target


def damaged(recording_id: str) -> SawtoothError:
    """Return the error for a recording whose file is damaged."""
    return SawtoothError(
        f"The file of recording {recording_id} is damaged. Drop its trace again: that puts a sound one in its place."
    )


def derive(recording_file: Path, target: Path) -> None:
    """Compute everything pages need of one recording and publish it at ``target``. Raises SourceError where the disk is full."""
    with draft(target.parent) as temporary:
        _write(recording_file, temporary)
        commit(temporary, target)


def _write(recording_file: Path, temporary: Path) -> None:
    con = borrow(f"{MEMORY_MB}MB", temporary.parent)  # what it spills is gone with the draft, whatever happens
    try:
        con.execute(f"ATTACH '{quoted(recording_file)}' AS r (READ_ONLY)")
        kind, events = con.execute(f"SELECT kind, {events_of('r.')} FROM r.recording").fetchall()[0]
        attach_new(con, temporary, "d", layout_of(events), "d.main,r.main")  # its views read both
        con.execute("USE r")  # only what stores looks into the derived file
        if kind == "trace":
            with con.cursor() as stored, Storing() as storing:
                # What it computed is gone when only storing is left.
                Deriving(con, stored, storing, all_sums=events > FEW_EVENTS).run()
        con.execute("USE memory")
        con.execute("CHECKPOINT d")
        con.execute("DETACH d; DETACH r")
        if events <= FEW_EVENTS:
            give_back(con)
            return
    except BaseException:
        con.close()
        raise
    con.close()  # of many events it keeps seventy megabytes and more
