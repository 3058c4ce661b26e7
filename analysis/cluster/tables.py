"""The summaries of a job's ranks as tables: who the ranks are, their collectives, and their own time. DuckDB reads them, a column at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import numpy as np
import pandas as pd

from sawtooth.analysis.ranks.beside import Shape
from sawtooth.analysis.ranks.own_time import F64, OwnTime, Part, as_quiet_as_others
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError

MEMORY_LIMIT = "400MB"  # of DuckDB, beside the columns that it hands out
CATEGORIES = ("name", "dtype", "group", "step")  # texts that thousands of rows repeat
NOT_HERE = "The summaries of this job's ranks are not in this data folder. Make the run again with sawtooth reduce."


@dataclass(frozen=True)
class Refusal:
    """A source that is no part of the job, and why."""

    source: str
    why: str


class JobTables:
    """What the ranks of one job say. A rank's position is its place in ``ranks``."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise NotFoundError(NOT_HERE)
        self._con = duckdb.connect(config={"memory_limit": MEMORY_LIMIT, "threads": 2})
        try:
            self._con.execute(f"CREATE VIEW summaries AS FROM read_parquet('{str(path).replace(chr(39), chr(39) * 2)}')")
        except duckdb.Error as error:
            raise SawtoothError("The summaries of this job are damaged. Make the run again with sawtooth reduce.") from error
        self.further = 0
        self.ranks = self._ranks()
        self._con.register("chosen", self.ranks[["position", "id", "device"]])
        self._con.execute(
            "CREATE VIEW rank AS SELECT c.position, s.* EXCLUDE (device) FROM summaries s JOIN chosen c USING (id, device)"
        )

    def _ranks(self) -> pd.DataFrame:
        """Return one row per rank and device: position, rank, device, host, gpu, uuid, pids, world, job, id, source, state, first_ns, step_ms, hidden_ns, held_ns.

        Of several traces of a rank, as a profiler leaves of each of its cycles, the last is kept.
        """
        rows = self._con.execute(
            "SELECT rank, device, host, gpu, uuid, pids, world, job, id, source, state, first_ns, step_ms, hidden_ns, held_ns "
            "FROM summaries WHERE kind = 'trace' AND device IS NOT NULL ORDER BY rank NULLS LAST, id, device, source"
        ).df()
        jobs = rows["job"].dropna().unique()
        if len(jobs) > 1:
            raise UsageError(f"These summaries are of {len(jobs)} jobs. Map the traces of each into a place of its own.")
        whole = len(rows)
        rows = rows.drop_duplicates(["id", "device"])
        known = rows["rank"].notna()
        last = rows[known].sort_values("first_ns", kind="stable").drop_duplicates(["rank", "device"], keep="last")
        rows = pd.concat([last.sort_values(["rank", "device"], kind="stable"), rows[~known]], ignore_index=True)
        self.further = whole - len(rows)
        if rows.empty:
            raise UsageError("None of the summaries is of a trace with GPU work.")
        rows["rank"] = rows["rank"].astype("Int64")
        return rows.assign(position=np.arange(len(rows)))

    @cached_property
    def world(self) -> int | None:
        """How many ranks the job has, None where no trace says so."""
        known = self.ranks["world"].dropna()
        return int(known.max()) if len(known) else None

    @property
    def missing(self) -> list[int]:
        """The ranks of the job without a trace."""
        here = set(self.ranks["rank"].dropna().astype(int))
        return [rank for rank in range(self.world or 0) if rank not in here] if here else []

    @property
    def refused(self) -> list[Refusal]:
        """The sources that could not be read."""
        rows = self._con.execute("SELECT source, why FROM summaries WHERE why IS NOT NULL ORDER BY source").fetchall()
        return [Refusal(source, why) for source, why in rows]

    def calls(self) -> pd.DataFrame:
        """Return all communication kernels, in order of rank and start, with the columns that ``ranks.matching`` asks for, exposed_ns and exposed_from_ns."""
        frame = (
            self._con.sql(
                """SELECT position, c.name, c.dtype, c."group", c.group_size, c.in_elements, c.out_elements, c.sequence, c.described AS has_arguments,
                      steps[c.step + 1].label AS step, coalesce(steps[c.step + 1].counted, false) AS counted,
                      c.start_ns, c.dur_ns, c.exposed_ns, c.exposed_from_ns
               FROM (SELECT position, step AS steps, unnest(call) AS c FROM rank) ORDER BY position, c.start_ns"""
            )
            .to_arrow_table()
            .to_pandas(categories=list(CATEGORIES))
        )
        integers = ("group_size", "in_elements", "out_elements", "sequence")
        frame = frame.astype({column: "Int64" for column in integers if frame[column].isna().any()})
        return frame.assign(rank=self.ranks["rank"].to_numpy(np.float64, na_value=np.nan)[frame["position"]])

    def steps(self) -> pd.DataFrame:
        """Return the counted steps of every rank: position, step (its label), start_ns, end_ns."""
        return self._con.execute(
            "SELECT position, s.label AS step, s.start_ns, s.end_ns FROM (SELECT position, unnest(step) AS s FROM rank) WHERE s.counted ORDER BY ALL"
        ).df()

    def parts(self) -> pd.DataFrame:
        """Return the own time of every rank: position, cause, long, step (its place), ns, error_ns; kernels beside communication as quick as elsewhere."""
        return self._con.execute(
            f"""WITH part AS (SELECT position, unnest(part, recursive := true) FROM rank), off AS ({self._louder})
                SELECT position, cause, long, step, greatest(ns - coalesce(off_ns, 0), 0) AS ns, error_ns
                FROM part LEFT JOIN off USING (position, cause, step) ORDER BY position, cause, long, step"""
        ).df()

    _louder = """SELECT position, 'work' AS cause, step, sum(greatest(ns - calls * least_ns, 0)) AS off_ns
        FROM (SELECT position, unnest(loud, recursive := true) FROM rank)
        JOIN (SELECT kernel, min(ns) AS least_ns FROM (SELECT unnest(quiet, recursive := true) FROM rank) GROUP BY kernel) USING (kernel)
        GROUP BY position, step"""

    def own(self, positions: Iterable[int]) -> dict[int, OwnTime]:
        """Return the own time of the ranks at ``positions``, of those whose trace has a replay; it cannot be edited."""
        wanted = [int(p) for p in dict.fromkeys(positions)]
        rows = self._con.execute(
            "SELECT position, part, gap, longest, quiet, loud, hidden_ns, held_ns FROM rank WHERE list_contains(?, position) AND part IS NOT NULL",
            [wanted],
        ).fetchall()
        own = [_own(*row[1:]) for row in rows]
        least = self._con.execute(
            """WITH asked AS (SELECT DISTINCT kernel FROM (SELECT unnest(loud, recursive := true) FROM rank WHERE list_contains(?, position)))
               SELECT kernel, min(ns) FROM (SELECT unnest(quiet, recursive := true) FROM rank) JOIN asked USING (kernel) GROUP BY kernel""",
            [wanted],
        ).fetchall()
        return dict(zip((row[0] for row in rows), as_quiet_as_others(own, {_shape(k): ns for k, ns in least}), strict=True))

    def sampled(self) -> list[DeviceTelemetry]:
        """Return what telemetry says of each sampled GPU."""
        rows = self._con.execute(
            "SELECT sampled, host, pids FROM summaries WHERE kind = 'telemetry' ORDER BY source, device"
        ).fetchall()
        return [
            replace(msgspec.json.decode(text, type=DeviceTelemetry), host=host, pids=tuple(pids)) for text, host, pids in rows
        ]


Row = dict[str, Any]


def _own(
    part: list[Row], gap: list[Row], longest: list[Row], quiet: list[Row], loud: list[Row], hidden_ns: float, held_ns: float
) -> OwnTime:
    steps = tuple(sorted({row["step"] for row in part}))
    place = {step: i for i, step in enumerate(steps)}
    ns: dict[tuple[str, bool], F64] = {}
    error_ns: dict[tuple[str, bool], F64] = {}
    for row in part:
        for column, of_part in (("ns", ns), ("error_ns", error_ns)):
            of_part.setdefault((row["cause"], row["long"]), np.zeros(len(steps)))[place[row["step"]]] = row[column]
    beside: dict[Shape, tuple[F64, F64]] = {}
    for row in loud:
        of_shape = beside.setdefault(_shape(row["kernel"]), (np.zeros(len(steps)), np.zeros(len(steps))))
        of_shape[0][place[row["step"]]], of_shape[1][place[row["step"]]] = row["ns"], row["calls"]
    single: dict[str, list[list[float]]] = {}
    for row in longest:
        single.setdefault(row["cause"], [[] for _ in steps])[place[row["step"]]].append(float(row["ns"]))
    return OwnTime(
        steps=steps,
        parts=tuple(Part(cause, ns[cause, long], error_ns[cause, long], long) for cause, long in ns),
        quiet={_shape(row["kernel"]): (row["ns"], row["calls"]) for row in quiet},
        loud=beside,
        compute=(),
        long_calls=(),
        short_calls=(),
        long_gaps_ns={row["cause"]: row["ns"] for row in gap},
        hidden_ns=hidden_ns,
        held_ns=held_ns,
        longest_ns={cause: tuple(np.array(gaps) for gaps in by_step) for cause, by_step in single.items()},
    )


def _shape(kernel: int) -> Shape:
    return str(kernel), ""
