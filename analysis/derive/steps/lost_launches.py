"""GPU operations that the profiler lost, by their launches.

Every kernel launch, graph launch and asynchronous copy leaves a record on the GPU. There are two exceptions: launches captured
into a CUDA graph do not run, and fills of 0 bytes leave no record (so fills are not checked). If the launch itself was lost,
its operator shows this (``silent_operators``). If the operator was lost too, a span without events shows it
(``eventless_spans``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I64, columns_of
from sawtooth.analysis.derive.steps.eventless_spans import eventless_spans
from sawtooth.analysis.derive.steps.silent_operators import silent_operators
from sawtooth.analysis.intervals import Intervals
from sawtooth.analysis.knowledge.host_names import CAPTURE_BEGINS, CAPTURE_ENDS, GRAPH_LAUNCH, LEAVES_RECORD


@dataclass(frozen=True)
class LostLaunches:
    """Launches without a record on the GPU.

    ``start`` is the host time of each, ascending, relative to the events' origin. ``graph`` is true if it launched a CUDA graph.
    ``unseen`` is true if the launch itself is not in the trace; ``start`` is then the start of its operator.
    """

    start: I64 = field(default_factory=lambda: np.zeros(0, np.int64))
    graph: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))
    unseen: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    def __len__(self) -> int:
        return len(self.start)


# Two launches at the same place of their steps belong to one graph if they share at least this part of their kernel names.
SAME_GRAPH = 0.5
# Share of different kernel counts among the launches at one place. If there were several graphs, their counts would repeat.
MAX_SCATTERED_SHARE = 0.6
MIN_LAUNCHES = 2  # A single launch at one place of the steps cannot be compared.


def lost_launches(con: duckdb.DuckDBPyConnection, origin: int, steps: Intervals | None = None) -> LostLaunches:
    """Return the launches without a record on the GPU, of the recording that ``con`` uses.

    With ``steps`` (host intervals), two more kinds count. Each kernel that is missing in a CUDA graph counts as one launch at the
    time of the graph's launch. Each launch that an operator lacks, compared with other steps, also counts as one.
    """
    names = con.execute("SELECT name_id, name FROM names").fetchall()
    launching = [name_id for name_id, name in names if LEAVES_RECORD.match(name)]
    if not launching:
        return LostLaunches()
    graphs = [name_id for name_id, name in names if GRAPH_LAUNCH.search(name)]
    columns = columns_of(
        con,
        f"""SELECT start_ns - {origin} AS start, name_id AS name FROM runtime_calls
        WHERE gpu_ops = 0 AND name_id IN ({_join_ids(launching)}) ORDER BY start_ns""",
    )
    start, graph = columns["start"].astype(np.int64), np.isin(columns["name"], graphs)
    short = _short_graphs(con, origin, graphs, steps) if steps is not None and graphs else start[:0]
    if len(start):
        run = ~_is_captured(con, origin, names, start)
        start, graph = start[run], graph[run]
    silent = silent_operators(con, origin, launching, steps) if steps is not None else start[:0]
    if steps is not None and not len(silent):
        silent = eventless_spans(con, origin, launching, steps)
    kinds = (len(start), len(short), len(silent))
    all_lost = np.concatenate([start, short, silent])
    order = np.argsort(all_lost, kind="stable")
    graph = np.concatenate([graph, np.zeros(len(short) + len(silent), bool)])
    unseen = np.repeat([False, False, True], kinds)
    return LostLaunches(all_lost[order], graph[order], unseen[order])


def _short_graphs(con: duckdb.DuckDBPyConnection, origin: int, graphs: list[int], steps: Intervals) -> I64:
    """Return the launch times of graphs that lack kernels, once for each missing kernel.

    A graph launches the same kernels each time. So kernels are missing if other launches at the same place of their steps have
    more kernels. Several graphs of different sizes may occur at one place; these repeat their sizes and share few kernel kinds.
    """
    rows = columns_of(
        con,
        f"""SELECT c.start_ns - {origin} AS start, g.name_id AS name, count(*) AS kernels
        FROM gpu_ops g JOIN runtime_calls c USING (call_id) WHERE c.name_id IN ({_join_ids(graphs)}) GROUP BY ALL""",
    )
    kinds: dict[int, dict[int, int]] = {}
    for start, name, kernels in zip(*(rows[key].tolist() for key in ("start", "name", "kernels")), strict=True):
        kinds.setdefault(start, {})[name] = kernels
    moments = np.array(sorted(kinds), np.int64)
    first, behind = np.searchsorted(moments, steps.starts), np.searchsorted(moments, steps.ends)
    missing_counts = behind - first
    if not len(missing_counts) or not missing_counts.any():
        return moments[:0]
    usual_missing = int(np.bincount(missing_counts[missing_counts > 0]).argmax())
    usual_first = first[missing_counts == usual_missing]
    missing: list[int] = []
    for place in range(usual_missing if len(usual_first) >= MIN_LAUNCHES else 0):
        launches = moments[usual_first + place].tolist()
        size = {start: sum(kinds[start].values()) for start in launches}
        largest = max(launches, key=size.__getitem__)
        scattered = len(set(size.values())) > max(1, MAX_SCATTERED_SHARE * len(launches))
        for start in launches:
            kinds_of_launch, kinds_of_largest = kinds[start], kinds[largest]
            shared = len(kinds_of_launch.keys() & kinds_of_largest.keys()) >= SAME_GRAPH * len(
                kinds_of_launch.keys() | kinds_of_largest.keys()
            )
            part = all(count <= kinds_of_largest.get(name, 0) for name, count in kinds_of_launch.items())
            if size[start] < size[largest] and (part or (scattered and shared)):
                missing += [start] * (size[largest] - size[start])
        # The largest launch lacks kernels too, but their number is unknown.
        if scattered and missing and missing[-1] in launches:
            missing.append(largest)
    return np.array(missing, np.int64)


def _is_captured(con: duckdb.DuckDBPyConnection, origin: int, names: list[tuple[int, str]], start: I64) -> NDArray[np.bool_]:
    """Return which calls begin while a stream is captured.

    All threads count, because autograd launches from its own threads.
    """
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
    """Return the start times of the calls with these names, ascending."""
    if not names:
        return np.zeros(0, np.int64)
    sql = f"SELECT start_ns - {origin} AS start FROM runtime_calls WHERE name_id IN ({_join_ids(names)}) ORDER BY start_ns"
    return columns_of(con, sql)["start"].astype(np.int64)


def _join_ids(ids: list[int]) -> str:
    return ", ".join(map(str, ids))
