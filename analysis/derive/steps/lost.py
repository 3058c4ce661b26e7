"""Launches whose GPU operations the profiler lost.

Every kernel launch, graph launch and asynchronous copy leaves a record on the GPU. Legal exceptions: launches that are captured into a
CUDA graph are not run, and fills of 0 bytes leave none (fills are not looked at).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I64, columns_of
from sawtooth.analysis.knowledge.host_names import CAPTURE_BEGINS, CAPTURE_ENDS, GRAPH_LAUNCH, LEAVES_RECORD


@dataclass(frozen=True)
class LostLaunches:
    """Launches without a record on the GPU: when each began on the host, relative to the events' origin, ascending, and whether it launched a CUDA graph."""

    start: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    graph: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.start)


def lost_launches(con: duckdb.DuckDBPyConnection, origin: int) -> LostLaunches:
    """Return the launches of the recording that ``con`` uses which have no record on the GPU."""
    names = con.execute("SELECT name_id, name FROM names").fetchall()
    launching = [name_id for name_id, name in names if LEAVES_RECORD.match(name)]
    if not launching:
        return LostLaunches()
    graphs = [name_id for name_id, name in names if GRAPH_LAUNCH.search(name)]
    columns = columns_of(
        con,
        f"""SELECT start_ns - {origin} AS start, name_id AS name FROM runtime_calls
        WHERE gpu_ops = 0 AND name_id IN ({_listed(launching)}) ORDER BY start_ns""",
    )
    start, graph = columns["start"].astype(np.int64), np.isin(columns["name"], graphs)
    if len(start):
        run = ~_captured(con, origin, names, start)
        start, graph = start[run], graph[run]
    return LostLaunches(start, graph)


def _captured(con: duckdb.DuckDBPyConnection, origin: int, names: list[tuple[int, str]], start: I64) -> NDArray[np.bool_]:
    """Tell which calls begin while a stream is captured, on whichever thread: autograd launches from its own."""
    begins, ends = (
        _starts(con, origin, [name_id for name_id, name in names if pattern.match(name)])
        for pattern in (CAPTURE_BEGINS, CAPTURE_ENDS)
    )
    captured = np.zeros(len(start), bool)
    for begin in begins:
        after = ends[np.searchsorted(ends, begin) :]
        captured |= (start >= begin) & (start < (after[0] if len(after) else np.iinfo(np.int64).max))
    return captured


def _starts(con: duckdb.DuckDBPyConnection, origin: int, names: list[int]) -> I64:
    """Return when the calls of these names begin, ascending."""
    if not names:
        return np.zeros(0, np.int64)
    sql = f"SELECT start_ns - {origin} AS start FROM runtime_calls WHERE name_id IN ({_listed(names)}) ORDER BY start_ns"
    return columns_of(con, sql)["start"].astype(np.int64)


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))
