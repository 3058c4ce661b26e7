"""Store tables larger than memory: rows are added in file order and read in order of time, in slices.

A block has rows in file order. A sorted run has the sorted rows of several blocks. A slice has the rows of one time range,
merged from all sorted runs. Sorted runs that exceed a memory budget are written into one unnamed temporary file. The system
removes this file even if the process is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64

Columns = dict[str, NDArray[Any]]
RUN_ROWS = 1 << 18  # Rows per sorted run. Larger runs need more memory for the unsorted rows of every table.
SLICE_ROWS = 1 << 19  # Rows per slice. Operator rows take about 60 MB.
# A sorted run keeps every 4,096th start time in memory. The borders of slices are chosen from these times.
INDEX_STRIDE = 1 << 12
MEMORY_BYTES = 64 << 20  # Size of the sorted runs in memory. Traces of up to about 700,000 events never use the disk.


def time_order(start: I64, dur: I64 | None) -> I64:
    """Return the indices that sort rows by start, then longest first, then by file order."""
    # Only rows with equal starts are sorted by duration, because one ``argsort`` is faster than ``lexsort`` of all rows.
    order = np.argsort(start, kind="stable")
    if dur is not None:
        ordered = start[order]
        same = ordered[1:] == ordered[:-1]
        if same.any():
            ties = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
            rows = order[ties]
            order[ties] = rows[np.lexsort((-dur[rows], start[rows]))]
    return order


class SortedRun:
    """One sorted part of a table, in memory or in the spool's file."""

    def __init__(self, columns: Columns) -> None:
        self.names = list(columns)
        self.rows = len(columns["start"])
        self.index = columns["start"][::INDEX_STRIDE].copy()
        self.bytes = sum(values.nbytes for values in columns.values())
        self._columns = columns
        self._file_offsets: dict[str, tuple[np.dtype[Any], int]] = {}
        self._file: IO[bytes] | None = None

    def spill(self, file: IO[bytes]) -> None:
        """Move the columns to the end of ``file``."""
        offset = file.seek(0, 2)
        for name, values in self._columns.items():
            self._file_offsets[name] = values.dtype, offset
            offset += file.write(np.ascontiguousarray(values).data)
        self._file, self._columns = file, {}

    def offsets(self, borders: I64) -> list[int]:
        """Return 0, the first row at or after each of ``borders``, and the number of rows."""
        return [0, *np.searchsorted(self.read("start", 0, self.rows), borders).tolist(), self.rows]

    def read(self, name: str, begin: int, end: int) -> NDArray[Any]:
        """Return rows ``begin`` to ``end`` of one column."""
        if self._file is None:
            return self._columns[name][begin:end]
        dtype, offset = self._file_offsets[name]
        self._file.seek(offset + begin * dtype.itemsize)
        return np.frombuffer(self._file.read((end - begin) * dtype.itemsize), dtype)


class Spool:
    """The sorted runs of all tables of one ingest, and the file for runs that do not fit in memory."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._budget = memory_bytes
        self._file: IO[bytes] | None = None
        self._in_memory: list[SortedRun] = []

    def add(self, run: SortedRun) -> None:
        """Add ``run``; move the oldest runs to disk while all runs in memory exceed the budget."""
        self._in_memory.append(run)
        while self._in_memory and sum(run.bytes for run in self._in_memory) > self._budget:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed in close
            self._in_memory.pop(0).spill(self._file)

    def close(self) -> None:
        """Free all memory and the file."""
        self._in_memory.clear()
        if self._file is not None:
            self._file.close()


class SpooledTable:
    """A table of the spool, which collects blocks of rows and sorts them into runs.

    Rows have the column ``start``, and ``dur`` if they have a duration.
    """

    def __init__(self, spool: Spool, run_rows: int = RUN_ROWS) -> None:
        self._spool = spool
        self._run_rows = run_rows
        self._pending: list[Columns] = []
        self._pending_rows = 0
        self.runs: list[SortedRun] = []
        self.rows = 0
        self.first: int | None = None
        self.last: int | None = None

    def add(self, columns: Columns) -> None:
        """Append one block; every block has the same columns."""
        start = columns["start"]
        if not len(start):
            return
        ends = start + columns["dur"] if "dur" in columns else start
        first, last = int(start.min()), int(ends.max())
        self.first = first if self.first is None else min(self.first, first)
        self.last = last if self.last is None else max(self.last, last)
        self._pending.append(columns)
        self._pending_rows += len(start)
        self.rows += len(start)
        if self._pending_rows >= self._run_rows:
            self.flush()

    def flush(self) -> None:
        """Sort pending rows into a run."""
        if not self._pending:
            return
        columns = {name: np.concatenate([block[name] for block in self._pending]) for name in self._pending[0]}
        self._pending, self._pending_rows = [], 0
        order = time_order(columns["start"], columns.get("dur"))
        run = SortedRun({name: values[order] for name, values in columns.items()})
        self.runs.append(run)
        self._spool.add(run)


def slices(*tables: SpooledTable, slice_rows: int = SLICE_ROWS) -> Iterator[tuple[Columns, ...]]:
    """Yield for each time slice the sorted rows of every table; {} for a table without rows."""
    for table in tables:
        table.flush()
    times = [run.index for table in tables for run in table.runs]
    index = np.sort(np.concatenate(times)) if times else np.empty(0, np.int64)
    borders = np.unique(index[slice_rows // INDEX_STRIDE :: slice_rows // INDEX_STRIDE])
    offsets = [[run.offsets(borders) for run in table.runs] for table in tables]
    for number in range(len(borders) + 1):
        yield tuple(_read_slice(table.runs, starts, number) for table, starts in zip(tables, offsets, strict=True))


def _read_slice(runs: list[SortedRun], offsets: list[list[int]], number: int) -> Columns:
    """Return the merged rows of slice ``number``; ``offsets`` has each run's first row of every slice."""
    parts = [
        (run, first_rows[number], first_rows[number + 1])
        for run, first_rows in zip(runs, offsets, strict=True)
        if first_rows[number + 1] > first_rows[number]
    ]
    if not parts:
        return {}
    columns = {name: np.concatenate([run.read(name, begin, end) for run, begin, end in parts]) for name in parts[0][0].names}
    if len(parts) == 1:
        return columns
    order = time_order(columns["start"], columns.get("dur"))
    return {name: values[order] for name, values in columns.items()}
