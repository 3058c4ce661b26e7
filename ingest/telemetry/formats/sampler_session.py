"""Sessions of Sawtooth's sampler: a segment, or the joined segments of a session.

``sawtooth.ingest.sampler`` documents the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.ingest.sampler.segments import decode_line
from sawtooth.ingest.telemetry.reader import Reader, TelemetryTables
from sawtooth.ingest.telemetry.session import SessionTable, note_damage


def sniff(head: bytes) -> bool:
    """Return whether ``head`` begins with the head record of a session."""
    first = head.lstrip(b"\r\n").split(b"\n", 1)[0]
    return first.startswith(b'{"k":"head",') and b'"columns":' in first


def read(lines: Iterator[bytes]) -> TelemetryTables:
    """Read the records of the first session in the file.

    Incomplete or damaged lines are counted.
    """
    collected, damaged = SessionTable(), 0
    session: str | None = None
    for line in lines:
        if not line.strip():
            continue
        record = decode_line(line)
        if record is None:
            damaged += 1
            continue
        if record.get("k") == "head":
            session = session or record.get("session")
            if record.get("session") != session:
                note = "The file has several sessions, of which only the first was read. Add the others as separate files."
                collected.samples.note("several_sessions", "data_loss", note)
                break
        collected.add([record])
    table = collected.table()
    note_damage(table, damaged)
    return table.telemetry()


READER = Reader("sampler session", sniff, read)
