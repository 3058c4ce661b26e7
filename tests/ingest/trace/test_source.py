"""Tests of the registry of trace formats. A new format needs one entry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.source import Source
from sawtooth.ingest.trace import registry
from sawtooth.ingest.trace.source import Facts, TraceSource, TraceTables
from sawtooth.ingest.trace.spool import Spool
from sawtooth.ingest.trace.tables import EventTables

SIGNATURE = b"PK\x03\x04kernels\n"  # Begins like a zip archive, which is refused unless a source recognises it.


@contextmanager
def read(opened: Source, folder: Path, progress: Callable[[int], None]) -> Iterator[tuple[TraceTables, Facts]]:
    """Read lines of ``name start_ns duration_ns``, one for each kernel."""
    rows = [line.split() for line in b"".join(opened.pieces())[len(SIGNATURE) :].decode().splitlines()]
    spool = Spool(folder)
    trace = EventTables(spool, opened.limits)
    columns = {
        "name_id": np.array([trace.name(name) for name, _, _ in rows], np.int32),
        "start": np.array([int(start) for _, start, _ in rows]),
        "dur": np.array([int(dur) for _, _, dur in rows]),
        "device": np.zeros(len(rows), np.int32),
        "stream": np.full(len(rows), 7),
    }
    trace.add_gpu("kernel", columns)
    progress(trace.events)
    about = {"vendor": "nvidia", "rank": 3}
    try:
        yield trace, Facts(10**18, 0, False, about, [{"device": 0, "name": "H100"}], trace.shapes(), list)
    finally:
        spool.close()


KERNEL_LINES = TraceSource("lines of kernels", lambda head: head.startswith(SIGNATURE), read)


def test_a_second_source_is_a_line_in_the_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kernels.bin"
    path.write_bytes(SIGNATURE + b"gemm 100 50\nrelu 200 5\ngemm 150 40\n")
    folder = DataFolder(tmp_path / "data")
    with pytest.raises(SourceError, match="zip"):
        ingest_file(path, folder)
    monkeypatch.setattr(registry, "SOURCES", (*registry.SOURCES, KERNEL_LINES))
    ref = ingest_file(path, folder)
    assert (ref.kind, ref.rank) == ("trace", 3)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        operations = con.execute(
            "SELECT name, start_ns, dur_ns, stream, coalesce(correlation, grid_x, bytes, call_id) FROM gpu_ops JOIN names USING (name_id) ORDER BY gpu_op_id"
        )
        assert operations.fetchall() == [
            (n, 10**18 + s, d, 7, None) for n, s, d in (("gemm", 100, 50), ("gemm", 150, 40), ("relu", 200, 5))
        ]
        about = con.execute("SELECT event_count, clock, first_ns, last_ns, vendor FROM recording").fetchone()
        assert about == (3, "unix", 10**18 + 100, 10**18 + 205, "nvidia")
        assert con.execute("SELECT name FROM devices").fetchall() == [("H100",)]


def test_every_source_knows_its_own_and_no_other() -> None:
    heads = {
        "torch.profiler JSON": b'\xef\xbb\xbf {"schemaVersion": 1, "traceEvents": [',
        "Nsight Systems SQLite export": b"SQLite format 3\x00\x10",
    }
    assert set(heads) == {source.name for source in registry.SOURCES}
    for name, head in heads.items():
        assert [source.name for source in registry.SOURCES if source.sniff(head)] == [name]
    for foreign in (b'PK\x03\x04 {"traceEvents": []}', b'{"resultType": "matrix"}', b"timestamp, index\n", b""):
        assert registry.source_for(foreign) is None
