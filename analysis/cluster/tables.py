"""The summaries of a job's ranks as tables, which DuckDB reads column by column.

They contain the ranks' identities, their collectives and their lost time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from sawtooth.analysis.cluster.summary_file import is_intact
from sawtooth.analysis.ranks.contention import Shape
from sawtooth.analysis.ranks.missing_ranks import missing_ranks
from sawtooth.analysis.ranks.stragglers.outliers import RankLosses
from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.ingest.errors import NotFoundError, SawtoothError, UsageError
from sawtooth.ingest.typed import from_json

MEMORY_LIMIT = "400MB"  # For DuckDB, without the columns that it returns.
CATEGORIES = ("name", "dtype", "group", "description", "step")  # Columns whose texts repeat in thousands of rows.
NOT_HERE = "The summaries of this job's ranks are not in this data folder. Run sawtooth reduce again to rebuild them."
DAMAGED = "The summaries of this job's ranks are damaged. Run sawtooth reduce again to rebuild them."


@dataclass(frozen=True)
class RefusedSource:
    """A source that could not be read, with the reason."""

    source: str
    why: str


class JobTables:
    """The data of the ranks of one job; a rank's position is its index in ``ranks``."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise NotFoundError(NOT_HERE)
        if not is_intact(path):
            raise SawtoothError(DAMAGED)
        self._con = duckdb.connect(config={"memory_limit": MEMORY_LIMIT, "threads": 2})
        try:
            self._con.execute(
                f"CREATE VIEW summaries AS FROM read_parquet('{str(path).replace(chr(39), chr(39) * 2)}', file_row_number = true)"
            )
        except duckdb.Error as error:
            raise SawtoothError(DAMAGED) from error
        self.unused_traces = 0  # Traces that are not used: copies, and traces of ranks that have a later trace.
        self.ranks = self._ranks()
        self._con.register("chosen", self.ranks[["position", "file_row_number"]])
        self._con.execute("CREATE VIEW rank AS SELECT c.position, s.* FROM summaries s JOIN chosen c USING (file_row_number)")

    def _ranks(self) -> pd.DataFrame:
        """Return one row per rank and device.

        The columns are position, rank, device, host, gpu, uuid, pids, world, job, id, source, state, first_ns, step_ms, run_ms,
        work_ms, and file_row_number, the row of the rank's summary. A profiler writes one trace per cycle. If a rank has several
        traces, the last one is used.
        """
        rows = self._con.execute(
            "SELECT rank, device, host, gpu, uuid, pids, world, job, id, source, state, first_ns, step_ms, run_ms, work_ms, file_row_number "
            "FROM summaries WHERE kind = 'trace' AND device IS NOT NULL ORDER BY rank NULLS LAST, id, device, work_ms IS NULL, source, state, file_row_number"
        ).df()
        jobs = rows["job"].dropna().unique()
        if len(jobs) > 1:
            raise UsageError(
                f"These summaries belong to {len(jobs)} jobs. Run sawtooth map for each job, with a separate output folder."
            )
        total = len(rows)
        rows = rows.drop_duplicates(["id", "device"])
        has_rank = rows["rank"].notna()
        last = rows[has_rank].sort_values("first_ns", kind="stable").drop_duplicates(["rank", "device"], keep="last")
        rows = pd.concat([last.sort_values(["rank", "device"], kind="stable"), rows[~has_rank]], ignore_index=True)
        self.unused_traces = total - len(rows)
        if rows.empty:
            raise UsageError(
                "None of the summaries comes from a trace with GPU work. Run sawtooth map on the traces of the job's ranks."
            )
        rows["rank"] = rows["rank"].astype("Int64")
        return rows.assign(position=np.arange(len(rows)))

    @cached_property
    def world(self) -> int | None:
        """The number of ranks of the job; None if no trace contains it."""
        world_sizes = self.ranks["world"].dropna()
        return int(world_sizes.max()) if len(world_sizes) else None

    @property
    def missing(self) -> list[int]:
        """The ranks of the job without a trace."""
        return missing_ranks(self.ranks["rank"].dropna().astype(int), self.world)

    @property
    def refused(self) -> list[RefusedSource]:
        """The sources that could not be read."""
        rows = self._con.execute("SELECT source, why FROM summaries WHERE why IS NOT NULL ORDER BY source").fetchall()
        return [RefusedSource(source, reason) for source, reason in rows]

    def telemetry_sources(self, hosts: Sequence[str | None]) -> list[tuple[str, str]]:
        """Return address and id of the telemetry files of ``hosts``, and of files without a host name."""
        rows = self._con.execute(
            "SELECT DISTINCT source, id FROM summaries WHERE kind = 'telemetry' AND (host IS NULL OR list_contains(?, host)) ORDER BY source, id",
            [[host for host in hosts if host is not None]],
        ).fetchall()
        return [(source, recording_id) for source, recording_id in rows]

    def calls(self) -> pd.DataFrame:
        """Return all communication kernels, ordered by rank and start.

        They have the columns that ``ranks.matching``, ``ranks.pipeline`` and ``ranks.groups`` need, plus exposed_ns and
        exposed_from_ns.
        """
        frame = (
            self._con.sql(
                """SELECT position, c.name, c.dtype, c."group", c.group_size, c.peer, c.in_elements, c.out_elements, c.sequence, c.described AS has_arguments,
                      steps[c.step + 1].label AS step, coalesce(steps[c.step + 1].counted, false) AS counted,
                      c.start_ns, c.dur_ns, c.exposed_ns, c.exposed_from_ns,
                      coalesce(c.sends, 0) AS sends, coalesce(c.receives, 0) AS receives, coalesce(c.forward, false) AS forward, c.bytes, c.description, c.serves
               FROM (SELECT position, step AS steps, unnest(call) AS c FROM rank) ORDER BY position, c.start_ns"""
            )
            .to_arrow_table()
            .to_pandas(categories=list(CATEGORIES))
        )
        integers = ("group_size", "peer", "in_elements", "out_elements", "sequence")
        frame = frame.astype({column: "Int64" for column in integers if frame[column].isna().any()})
        return frame.assign(rank=self.ranks["rank"].to_numpy(np.float64, na_value=np.nan)[frame["position"]])

    def steps(self) -> pd.DataFrame:
        """Return the counted steps of every rank: position, step (its label), start_ns, end_ns."""
        return self._con.execute(
            "SELECT position, s.label AS step, s.start_ns, s.end_ns FROM (SELECT position, unnest(step) AS s FROM rank) WHERE s.counted ORDER BY ALL"
        ).df()

    def losses_of(self, positions: Sequence[int]) -> dict[int, RankLosses]:
        """Return each rank's lost time, and its kernels without and during communication, by position."""
        rows = self._con.execute(
            "SELECT position, lost, held_ms, quiet, beside FROM rank WHERE list_contains(?, position)", [list(positions)]
        ).fetchall()
        losses = {}
        # Kernels in ``quiet`` never overlapped with communication, kernels in ``overlapping`` always did.
        for position, lost, interrupted_ms, quiet, overlapping in rows:
            kernels = {_shape(row["kernel"]): (row["ns"], row["calls"]) for row in quiet}
            shapes = kernels.keys() | {_shape(kernel) for kernel in overlapping}
            losses[position] = RankLosses({row["cause"]: row["ms"] for row in lost}, interrupted_ms, kernels, shapes)
        return losses

    def lost(self) -> pd.DataFrame:
        """Return the lost time of each rank per step: position, cause, ms."""
        return self._con.execute(
            "SELECT position, l.cause, l.ms FROM (SELECT position, unnest(lost) AS l FROM rank) ORDER BY ALL"
        ).df()

    def sampled(self) -> list[DeviceTelemetry]:
        """Return the telemetry summary of each sampled GPU."""
        rows = self._con.execute(
            "SELECT sampled, host, pids FROM summaries WHERE kind = 'telemetry' ORDER BY source, device"
        ).fetchall()
        return [replace(from_json(text, DeviceTelemetry), host=host, pids=tuple(pids)) for text, host, pids in rows]


def _shape(kernel: int) -> Shape:
    return str(kernel), ""
