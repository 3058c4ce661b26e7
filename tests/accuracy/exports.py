"""Compare Sawtooth's values of Nsight Systems exports with SQL over the exports' own tables.

    python -m tests.accuracy.exports FILE.sqlite …

For each GPU of each file it compares the busy share of the analysed window, and the times of all kernels, copies and memory
sets. For the whole file it compares the total time of all NVTX ranges, and the time of the one range name that differs most.
It exits with 1 if a quantity differs by more than 0.1 percent. The SQL runs in Python's sqlite3 and uses no code of Sawtooth.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.ingest.manifest import new_manifest
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder

TOLERANCE = 1e-3  # Largest accepted relative difference.
KINDS = {"kernel": "KERNEL", "memcpy": "MEMCPY", "memset": "MEMSET"}
WHOLE_GRAPHS = "GRAPH_TRACE"  # Whole CUDA graphs: Sawtooth counts them as kernels, Nsight puts them in their own table.
EMITTED = re.compile(r",? ?(?:seq|op_id|sizes|input_op_ids) ?=.*$")  # emit_nvtx writes this after an operator's name.
# Event type 59 is a range by push and pop, type 60 a range by start and end.
RANGES = "SELECT coalesce(text, value, ''), n.end - n.start FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE eventType IN (59, 60) AND n.end IS NOT NULL"


def relative_difference(a: float, b: float) -> float:
    """Return the difference as a share of the larger number; 0 if both are 0."""
    return abs(a - b) / max(abs(a), abs(b), 1e-12)


@dataclass(frozen=True)
class Compared:
    """A quantity of an export, by SQL and by Sawtooth."""

    what: str
    by_sql: float
    sawtooth: float

    @property
    def error(self) -> float:
        return relative_difference(self.by_sql, self.sawtooth)

    def line(self, file: str) -> str:
        return f"| {file} | {self.what} | {self.by_sql:,.6g} | {self.sawtooth:,.6g} | {self.error:.3%} |"


def union_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of the spans (start, end)."""
    total, reached = 0, -(1 << 62)
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Export:
    """The tables of an export, by plain SQL."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        (self.base,) = connection.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()

    def spans(self, kind: str, device: int) -> list[tuple[int, int]]:
        """Return (start, end) in Unix nanoseconds of the operations of a kind on a GPU."""
        table = f"CUPTI_ACTIVITY_KIND_{kind}"
        if table not in self.tables:
            return []
        rows = self.connection.execute(f"SELECT start, end FROM {table} WHERE deviceId = ?", [device])
        return [(start + self.base, end + self.base) for start, end in rows]

    def ranges(self) -> Counter[str]:
        """Return the nanoseconds of NVTX ranges by name."""
        total: Counter[str] = Counter()
        for name, ns in self.connection.execute(RANGES) if "NVTX_EVENTS" in self.tables else ():
            total[EMITTED.sub("", name)] += ns
        return total


def compared_quantities(path: Path, result: RunResult, library: Library) -> list[Compared]:
    """Return every quantity of one file."""
    found: list[Compared] = []
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        export = Export(connection)
        for rank in result.ranks:
            assert rank.device is not None
            with library.open(rank.recording_id) as recording:
                windows = recording.rows("SELECT start_ns, end_ns FROM windows WHERE device = ?", [rank.device])
                sawtooth_ns = dict(
                    recording.rows("SELECT kind, sum(dur_ns)::BIGINT FROM gpu_ops WHERE device = ? GROUP BY 1", [rank.device])
                )
                ranges = Counter(dict(recording.rows("SELECT name, sum(dur_ns)::BIGINT FROM named_cpu_ops GROUP BY 1")))
            work = [span for kind in (*KINDS.values(), WHOLE_GRAPHS) for span in export.spans(kind, rank.device)]
            cut = [(max(s, a), min(e, b)) for s, e in work for a, b in windows if s < b and e > a]
            busy = rank.metrics["gpu_busy_share"].value
            assert busy is not None
            share = union_ns(cut) / sum(b - a for a, b in windows)
            found.append(Compared(f"GPU {rank.device}, busy share of the window", share, busy))
            for kind, table in KINDS.items():
                spans = export.spans(table, rank.device) + (export.spans(WHOLE_GRAPHS, rank.device) if kind == "kernel" else [])
                sql_ms = sum(e - s for s, e in spans) / 1e6
                found.append(Compared(f"GPU {rank.device}, {kind} time, ms", sql_ms, sawtooth_ns.get(kind, 0) / 1e6))
        sql_ranges = export.ranges()
        found.append(Compared("NVTX ranges, ms", sql_ranges.total() / 1e6, sum(ranges.values()) / 1e6))
        names = sql_ranges.keys() | ranges.keys()
        if names:
            worst = max(names, key=lambda name: relative_difference(sql_ranges[name], ranges[name]))
            what = f"NVTX range of the largest difference of {len(sql_ranges)} names, ms"
            found.append(Compared(what, sql_ranges[worst] / 1e6, ranges[worst] / 1e6))
        return found


def main(files: list[str]) -> int:
    failed = False
    print("| export | quantity | by SQL | Sawtooth | difference |\n|---|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        library = Library(DataFolder(Path(scratch)).create())
        for path in map(Path, files):
            result = analyse(new_manifest([ingest_file(path, library.folder)], path.stem), library)
            for one in compared_quantities(path, result, library):
                print(one.line(path.stem))
                failed |= one.error > TOLERANCE
        library.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
