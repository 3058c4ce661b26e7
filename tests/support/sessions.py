"""Read a session folder of the sampler for a test."""

from __future__ import annotations

from pathlib import Path

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.sampler.segments import HEAD_KEYS
from sawtooth.ingest.telemetry.session import SessionReader, SessionTable, note_damage
from sawtooth.ingest.telemetry.table import SampleTable


def read_session(folder: Path) -> SampleTable:
    """Read a session folder as telemetry. Raises SourceError if it contains none."""
    reader = SessionReader(folder)
    meta = reader.meta
    collected = SessionTable(columns=[str(c) for c in meta["columns"]])
    collected.add(
        [{"k": "head", "m": meta["started_m"], "w": meta["started_w"], **{k: meta[k] for k in HEAD_KEYS if k in meta}}]
    )
    collected.add(reader.poll())
    table = collected.table()
    note_damage(table, reader.damaged)
    if table.is_empty():
        raise SourceError("E-NOEV", "The session has no samples yet. Wait for the first sample, then try again.")
    return table
