"""Compare Sawtooth's values of Nsight Systems exports with SQL over the exports' own tables.

    python -m tests.accuracy.exports FILE.sqlite …

For each GPU of each file it compares the busy share of the analysed window, and the times of all kernels, copies and
memory sets. For the file it compares the time of all NVTX ranges, in total and by name. It exits with 1 if one differs
by more than 0.1 percent. The SQL is Python's sqlite3 and uses none of our code.
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

BAR = 1e-3
KINDS = {"kernel": "KERNEL", "memcpy": "MEMCPY", "memset": "MEMSET"}
WHOLE_GRAPHS = "GRAPH_TRACE"  # a graph traced as one operation: kernels of ours, in a table of its own there
EMITTED = re.compile(r",? ?(?:seq|op_id|sizes|input_op_ids) ?=.*$")  # what emit_nvtx writes behind an operator's name
RANGES = "SELECT coalesce(text, value, ''), n.end - n.start FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId WHERE eventType IN (59, 60) AND n.end IS NOT NULL"


@dataclass(frozen=True)
class Held:
    """A quantity in the export and in Sawtooth."""

    what: str
    there: float
    here: float

    @property
    def error(self) -> float:
        """Return the relative error; 0 if both values are 0."""
        return abs(self.here - self.there) / max(abs(self.there), abs(self.here), 1e-12)

    def line(self, file: str) -> str:
        """Return the row of the table."""
        return f"| {file} | {self.what} | {self.there:,.6g} | {self.here:,.6g} | {self.error:.3%} |"


def union_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Return how long at least one of the spans (start, end) lasts."""
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


def held(path: Path, result: RunResult, library: Library) -> list[Held]:
    """Return every quantity of one file."""
    found: list[Held] = []
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        export = Export(connection)
        for rank in result.ranks:
            assert rank.device is not None
            with library.open(rank.recording_id) as recording:
                windows = recording.rows("SELECT start_ns, end_ns FROM windows WHERE device = ?", [rank.device])
                ours = dict(
                    recording.rows("SELECT kind, sum(dur_ns)::BIGINT FROM gpu_ops WHERE device = ? GROUP BY 1", [rank.device])
                )
                ranges = Counter(dict(recording.rows("SELECT name, sum(dur_ns)::BIGINT FROM named_cpu_ops GROUP BY 1")))
            work = [span for kind in (*KINDS.values(), WHOLE_GRAPHS) for span in export.spans(kind, rank.device)]
            cut = [(max(s, a), min(e, b)) for s, e in work for a, b in windows if s < b and e > a]
            busy = rank.metrics["gpu_busy_share"].value
            assert busy is not None
            share = union_ns(cut) / sum(b - a for a, b in windows)
            found.append(Held(f"GPU {rank.device}, busy share of the window", share, busy))
            for kind, table in KINDS.items():
                spans = export.spans(table, rank.device) + (export.spans(WHOLE_GRAPHS, rank.device) if kind == "kernel" else [])
                there_ms = sum(e - s for s, e in spans) / 1e6
                found.append(Held(f"GPU {rank.device}, {kind} time, ms", there_ms, ours.get(kind, 0) / 1e6))
        there = export.ranges()
        found.append(Held("NVTX ranges, ms", there.total() / 1e6, sum(ranges.values()) / 1e6))
        worst = max(there.keys() | ranges.keys(), key=lambda name: Held("", there[name], ranges[name]).error, default="")
        largest = f"NVTX range of the largest difference of {len(there)} names, ms"
        return [*found, Held(largest, there[worst] / 1e6, ranges[worst] / 1e6)]


def main(files: list[str]) -> int:
    """Print the table; return the exit code."""
    failed = False
    print("| export | quantity | by SQL | Sawtooth | difference |\n|---|---|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as scratch:
        library = Library(DataFolder(Path(scratch)).create())
        for path in map(Path, files):
            result = analyse(new_manifest([ingest_file(path, library.folder)], path.stem), library)
            for one in held(path, result, library):
                print(one.line(path.stem))
                failed |= one.error > BAR
        library.close()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
