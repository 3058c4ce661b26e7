"""Tables larger than memory: rows arrive in file order and are read in order of time, in slices.

Blocks are sorted into runs. Runs beyond a budget go to one unnamed temporary file, which the system removes even if the process
is killed. A slice is the same stretch of time from every run, so reading merges the runs.
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
RUN_ROWS = 1 << 18  # large enough to sort well, small enough that the unsorted tail of every table fits
SLICE_ROWS = 1 << 19  # rows linked and written at once: some 60 MB of operators
SAMPLE_ROWS = 1 << 12  # one time is stored for each of so many rows of a run, to find the borders of slices
MEMORY_BYTES = 64 << 20  # runs in memory before any goes to disk: traces of some 700,000 events never use it


def order_of(start: I64, dur: I64 | None) -> I64:
    """Return the order of ids: by start, longest first, then as in the file."""
    order = np.argsort(start, kind="stable")
    if dur is not None:
        ordered = start[order]
        same = ordered[1:] == ordered[:-1]
        if same.any():
            ties = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
            rows = order[ties]
            order[ties] = rows[np.lexsort((-dur[rows], start[rows]))]
    return order


class Run:
    """One sorted part of a table, in memory or in the spool's file."""

    def __init__(self, columns: Columns) -> None:
        self.names = list(columns)
        self.rows = len(columns["start"])
        self.samples = columns["start"][::SAMPLE_ROWS].copy()
        self.bytes = sum(values.nbytes for values in columns.values())
        self._columns = columns
        self._places: dict[str, tuple[np.dtype[Any], int]] = {}
        self._file: IO[bytes] | None = None

    def spill(self, file: IO[bytes]) -> None:
        """Move the columns to the end of ``file``."""
        offset = file.seek(0, 2)
        for name, values in self._columns.items():
            self._places[name] = values.dtype, offset
            offset += file.write(np.ascontiguousarray(values).data)
        self._file, self._columns = file, {}

    def offsets(self, borders: I64) -> list[int]:
        """Return 0, the first row at or after each of ``borders``, and the number of rows."""
        return [0, *np.searchsorted(self.read("start", 0, self.rows), borders).tolist(), self.rows]

    def read(self, name: str, begin: int, end: int) -> NDArray[Any]:
        """Return rows ``begin`` to ``end`` of one column."""
        if self._file is None:
            return self._columns[name][begin:end]
        dtype, offset = self._places[name]
        self._file.seek(offset + begin * dtype.itemsize)
        return np.frombuffer(self._file.read((end - begin) * dtype.itemsize), dtype)


class Spool:
    """The runs of all tables of one ingest, and the file for those that do not fit in memory."""

    def __init__(self, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._folder = folder
        self._budget = memory_bytes
        self._file: IO[bytes] | None = None
        self._held: list[Run] = []

    def keep(self, run: Run) -> None:
        """Add ``run``; the oldest runs go to disk if there are too many bytes."""
        self._held.append(run)
        while self._held and sum(r.bytes for r in self._held) > self._budget:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  (closed by close)
            self._held.pop(0).spill(self._file)

    def close(self) -> None:
        """Free all memory and the file."""
        self._held.clear()
        if self._file is not None:
            self._file.close()


class SpooledTable:
    """Rows that arrive in file order, with their ``start`` (and ``dur`` if they have one)."""

    def __init__(self, spool: Spool, run_rows: int = RUN_ROWS) -> None:
        self._spool = spool
        self._run_rows = run_rows
        self._pending: list[Columns] = []
        self._pending_rows = 0
        self.runs: list[Run] = []
        self.rows = 0
        self.first: int | None = None
        self.last: int | None = None
        self.largest = 0  # the largest start: separates Unix time from time since boot

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
        order = order_of(columns["start"], columns.get("dur"))
        run = Run({name: values[order] for name, values in columns.items()})
        self.runs.append(run)
        self._spool.keep(run)


def slices(*tables: SpooledTable, slice_rows: int = SLICE_ROWS) -> Iterator[tuple[Columns, ...]]:
    """Yield the same stretches of time of every table, in order.

    Rows are in the order of ids; there are no columns without rows.
    """
    for table in tables:
        table.flush()
    samples = np.sort(np.concatenate([np.empty(0, np.int64), *(run.samples for table in tables for run in table.runs)]))
    borders = np.unique(samples[slice_rows // SAMPLE_ROWS :: slice_rows // SAMPLE_ROWS]) if len(samples) else samples
    offsets = [[run.offsets(borders) for run in table.runs] for table in tables]
    for i in range(len(borders) + 1):
        yield tuple(_cut(table.runs, starts, i) for table, starts in zip(tables, offsets, strict=True))


def _cut(runs: list[Run], offsets: list[list[int]], i: int) -> Columns:
    parts = [(run, at[i], at[i + 1]) for run, at in zip(runs, offsets, strict=True) if at[i + 1] > at[i]]
    if not parts:
        return {}
    columns = {name: np.concatenate([run.read(name, begin, end) for run, begin, end in parts]) for name in parts[0][0].names}
    if len(parts) == 1:
        return columns
    order = order_of(columns["start"], columns.get("dur"))
    return {name: values[order] for name, values in columns.items()}
