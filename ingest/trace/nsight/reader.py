"""The trace source for the output of ``nsys export --type sqlite``, from 2022 to today."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sawtooth.ingest.source import Source
from sawtooth.ingest.trace.nsight.database import check_header, opened_database
from sawtooth.ingest.trace.nsight.facts import facts
from sawtooth.ingest.trace.nsight.gpu import DeviceNumbering, read_copies, read_graphs, read_kernels, read_syncs
from sawtooth.ingest.trace.nsight.host import read_calls, read_overheads, read_ranges, read_system_calls
from sawtooth.ingest.trace.nsight.trace import NsightTrace
from sawtooth.ingest.trace.source import Facts, TraceSource, TraceTables
from sawtooth.ingest.trace.spool import Spool

MAGIC = b"SQLite format 3\x00"


def sniff(head: bytes) -> bool:
    """Return whether ``head`` begins a SQLite database. ``opened_database`` checks the tables."""
    return head.startswith(MAGIC)


@contextmanager
def read(opened: Source, folder: Path, progress: Callable[[int], None]) -> Iterator[tuple[TraceTables, Facts]]:
    """Read the tables that Sawtooth knows, and ignore all other tables."""
    spool = Spool(folder)
    try:
        with _plain_file(opened, folder) as path, opened_database(path) as database:
            trace = NsightTrace(database, opened.limits, spool)
            numbering = DeviceNumbering(trace)
            for read_host_table in (read_ranges, read_calls, read_system_calls, read_overheads):
                read_host_table(trace)
                progress(trace.events)
            for read_gpu_table in (read_kernels, read_copies, read_graphs, read_syncs):
                read_gpu_table(trace, numbering)
                progress(trace.events)
            yield trace, facts(trace, numbering)
    finally:
        spool.close()


@contextmanager
def _plain_file(opened: Source, folder: Path) -> Iterator[Path]:
    """Provide the database as a file, decompressed if the source is compressed.

    Every byte is read, because the hash of all bytes is the recording's id.
    """
    if not opened.gzipped:
        check_header(opened.path)
        with closing(opened.pieces()) as pieces:
            for _ in pieces:
                pass
        yield opened.path
        return
    temporary = Path(tempfile.mkdtemp(prefix=".draft.", dir=folder))
    try:
        with (temporary / "export.sqlite").open("wb") as file, closing(opened.pieces()) as pieces:
            for piece in pieces:
                file.write(piece)
        yield temporary / "export.sqlite"
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


SOURCE = TraceSource("Nsight Systems SQLite export", sniff, read)
