"""Reduce step of a large job: combine the summaries of all ranks on one machine.

The functions of ``sawtooth.analysis.ranks`` match collectives, compare clocks and find late ranks, as for runs of traces. Only the
source of the rows differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from sawtooth.analysis.cluster.representatives import MAX_REPRESENTATIVES, choose
from sawtooth.analysis.cluster.stages import unequal_work_cost
from sawtooth.analysis.cluster.tables import JobTables
from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.nulls import none_if_null
from sawtooth.analysis.ranks.clocks import RankClock
from sawtooth.analysis.ranks.groups import RankLocation, group_uses
from sawtooth.analysis.ranks.matching import match_rows
from sawtooth.analysis.ranks.missing_ranks import missing_ranks_note
from sawtooth.analysis.ranks.peers import have_common_step, peers
from sawtooth.analysis.ranks.pipeline import pipeline_of, stages_of
from sawtooth.analysis.ranks.recorded_collectives import RecordedJob
from sawtooth.analysis.ranks.stragglers.outliers import find_outliers
from sawtooth.analysis.ranks.stragglers.reasons import with_reason
from sawtooth.analysis.ranks.stragglers.two_groups import split_of
from sawtooth.analysis.run.job import SEND_RECEIVE, GroupUse, Pipeline, Split, Straggler
from sawtooth.analysis.telemetry.attribution import TraceDevice, attribute
from sawtooth.analysis.telemetry.summary import DeviceTelemetry

UNEQUAL = "A step takes {:.2f} times as long as with equal work on all ranks of this pipeline."


@dataclass(frozen=True)
class JobOverview:
    """A job with many ranks.

    * ``ranks``: one row per rank. Columns: position, rank, device, host, id, source, step_ms, wait_ms, late_ms, last_share,
      clock_offset_ns (None if unknown). A position is the number of the row.
    * ``heat``: as in ``ranks.heatmap.rank_steps``.
    * ``stragglers``, ``split``: their ``positions`` refer to ``ranks``.
    * ``representatives``: the positions of at most 16 typical or unusual ranks.
    * ``unmatched``: the number of communication calls without a partner on other ranks.
    * ``slowdown``: as in ``stages.UnequalWorkCost``; None for jobs without a pipeline or without a common end of the step.
    * ``groups``, ``schedule``: the job's process groups by kind, and its pipeline, as in ``run.job.Communication``.
    """

    ranks: pd.DataFrame
    heat: pd.DataFrame
    stragglers: tuple[Straggler, ...]
    representatives: tuple[int, ...]
    unmatched: int
    notes: tuple[str, ...]
    slowdown: float | None
    groups: tuple[GroupUse, ...] = ()
    schedule: Pipeline | None = None
    split: Split | None = None


def overview_of(path: Path) -> JobOverview:
    """Return the overview from the summaries gathered in ``path``.

    Raises the same errors as ``JobTables``. The last result is cached, because both the import of a job and the analysis of its
    run need it.
    """
    return _overview(path, path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=1)
def _overview(path: Path, _changed_ns: int) -> JobOverview:
    return reduce_job(JobTables(path))


def reduce_job(tables: JobTables) -> JobOverview:
    """Return the overview of the ranks in ``tables``."""
    ranks, calls = tables.ranks, tables.calls()
    total = len(calls)
    rows, clocks, notes = match_rows(calls, len(ranks), ranks["world"].tolist())
    del calls  # Free the largest table, which is no longer needed.
    rows["exposed_wait_ns"] = _exposed_waits(rows)
    peers_of = peers(rows, len(ranks))
    numbers = [None if pd.isna(rank) else int(rank) for rank in ranks["rank"]]
    hosts = [None if pd.isna(host) else str(host) for host in ranks["host"]]
    step_ms = float(ranks["step_ms"].median()) if ranks["step_ms"].notna().any() else 0.0
    stragglers: tuple[Straggler, ...] = ()
    uneven, split = None, None
    if len(rows):
        recorded = RecordedJob.from_rows(rows, len(ranks))
        stragglers = find_outliers(recorded, tables.losses_of, peers_of, numbers, hosts, step_ms)
        if (rows["name"] == SEND_RECEIVE).any() and have_common_step(rows, len(ranks)):
            uneven = unequal_work_cost(recorded, peers_of, numbers, hosts)
        stragglers = stragglers or (uneven.stragglers if uneven else ())
        split = None if stragglers else split_of(recorded, peers_of, numbers, hosts, step_ms)
    if any(late.kernel_ratio is not None for late in stragglers):
        sampled = _telemetry(ranks, tables.sampled())
        stragglers = tuple(with_reason(late, sampled, peers_of) for late in stragglers)
    steps = tables.steps()
    table = _with_waits(ranks, rows, steps, clocks)
    heat = _heat(ranks, rows, steps, _stages(rows, clocks, peers_of))
    late = [position for straggler in stragglers for position in straggler.positions]
    return JobOverview(
        ranks=table,
        heat=heat,
        stragglers=stragglers,
        representatives=choose(tables.lost(), table, peers_of, late, MAX_REPRESENTATIVES),
        unmatched=total - len(rows),
        notes=(*notes, *([UNEQUAL.format(uneven.slowdown)] if uneven and uneven.stragglers else []), *_notes(tables)),
        slowdown=uneven.slowdown if uneven else None,
        groups=group_uses(rows, _places(ranks, steps)),
        schedule=_schedule(ranks, rows, clocks, peers_of),
        split=split,
    )


def _places(ranks: pd.DataFrame, steps: pd.DataFrame) -> list[RankLocation]:
    counts = steps.groupby("position").size().reindex(range(len(ranks)), fill_value=0).tolist()
    gpu_of = {name: identify(name, None, None, None, None) for name in ranks["gpu"].dropna().unique()}
    names = {name: gpu.name for name, gpu in gpu_of.items() if gpu is not None}
    return [
        RankLocation(none_if_null(row.host), int(row.device), names.get(row.gpu), count)
        for row, count in zip(ranks.itertuples(), counts, strict=True)
    ]


def _schedule(
    ranks: pd.DataFrame,
    rows: pd.DataFrame,
    clocks: Sequence[RankClock | None],
    peers_of: Sequence[Sequence[int]],
) -> Pipeline | None:
    """Return the pipeline's schedule; None without a pipeline, or if a summary lacks its rank's GPU work."""
    if ranks["work_ms"].isna().any() or not (rows["name"] == SEND_RECEIVE).any():
        return None
    counted = rows[rows["counted"].to_numpy(bool)]
    steps = counted.groupby("position")["step"].nunique()
    waited_ms = (counted.groupby("position")["exposed_wait_ns"].sum() / steps / 1e6).reindex(range(len(ranks)), fill_value=0.0)
    work_ms = (ranks["work_ms"].to_numpy(float) - waited_ms.to_numpy(float)).clip(0.0)
    step_ms = float(ranks["run_ms"].median()) if ranks["run_ms"].notna().any() else None
    return pipeline_of(rows, [clock.offset_ns if clock else 0 for clock in clocks], step_ms, peers_of, work_ms.tolist())


def _exposed_waits(rows: pd.DataFrame) -> np.ndarray:
    """Return each row's waiting time without computation, ns.

    If several calls of a rank wait at once, the time belongs to the first one. A call's exposed time is treated as one piece. This
    is only wrong if computation stops and starts again during the call.
    """
    start = rows["start_ns"].to_numpy(np.int64)
    end = start + rows["wait_ns"].to_numpy(np.int64)
    order = np.lexsort((start, rows["position"]))
    latest = pd.Series(end[order]).groupby(rows["position"].to_numpy()[order]).cummax()
    previous_end = latest.groupby(rows["position"].to_numpy()[order]).shift().fillna(0).astype(np.int64).to_numpy()
    begin = np.empty_like(start)
    begin[order] = np.minimum(np.maximum(start[order], previous_end), end[order])
    exposed = start + rows["exposed_from_ns"].to_numpy(np.int64)
    until = np.minimum(end, exposed + rows["exposed_ns"].to_numpy(np.int64))
    return np.maximum(until - np.maximum(begin, exposed), 0)


def _with_waits(
    ranks: pd.DataFrame, rows: pd.DataFrame, steps: pd.DataFrame, clocks: Sequence[RankClock | None]
) -> pd.DataFrame:
    """Return the ranks with the columns of ``run.model.RankWaits``: waits, lateness and clocks."""
    counted = rows[rows["counted"].to_numpy(bool)]
    counts = steps.groupby("position").size().reindex(range(len(ranks)), fill_value=0).clip(lower=1)
    by_position = counted.groupby("position")
    exposed = counted.groupby("collective")["exposed_wait_ns"].transform("sum")
    peer_wait_ns = (exposed - counted["exposed_wait_ns"]) / (counted["ranks"] - 1).clip(lower=1)
    last_ms = peer_wait_ns.where(counted["last"], 0.0).groupby(counted["position"]).sum()
    columns = ["position", "rank", "device", "host", "id", "source", "step_ms"]
    return ranks[columns].assign(
        wait_ms=by_position["wait_ns"].sum().reindex(counts.index, fill_value=0).to_numpy() / counts.to_numpy() / 1e6,
        late_ms=last_ms.reindex(counts.index, fill_value=0.0).to_numpy() / counts.to_numpy() / 1e6,
        last_share=by_position["last"].mean().reindex(counts.index).to_numpy(),
        clock_offset_ns=pd.array([clock.offset_ns if clock else None for clock in clocks], dtype="Int64"),
    )


def _stages(rows: pd.DataFrame, clocks: Sequence[RankClock | None], peers_of: Sequence[Sequence[int]]) -> list[int | None]:
    """Return each rank's pipeline stage, by position; None for ranks that send nothing."""
    order = stages_of(rows, [clock.offset_ns if clock else 0 for clock in clocks], peers_of)
    of_rank = {position: number for number, stage in enumerate(order) for position in stage}
    return [of_rank.get(position) for position in range(len(peers_of))]


def _heat(ranks: pd.DataFrame, rows: pd.DataFrame, steps: pd.DataFrame, stages: Sequence[int | None]) -> pd.DataFrame:
    waits = rows.groupby(["position", rows["step"].astype(object)])["exposed_wait_ns"].sum().rename("wait_ns")
    heat = steps.merge(waits.reset_index(), on=["position", "step"], how="left")
    step_ns = (heat["end_ns"] - heat["start_ns"]).to_numpy(np.int64)
    wait_ns = np.minimum(heat["wait_ns"].fillna(0).to_numpy(np.int64), step_ns)
    numbered = bool(ranks["rank"].notna().all())
    at = heat["position"].to_numpy(np.int64)
    table = pd.DataFrame(
        {
            "rank": ranks["rank"].to_numpy(np.int64)[at] if numbered else at,
            "host": ranks["host"].to_numpy(object)[at],
            "stage": pd.array(stages, dtype="Int64")[at],
            "step": heat["step"].to_numpy(object),
            "own_ms": (step_ns - wait_ns) / 1e6,
            "wait_ms": wait_ns / 1e6,
        }
    )
    return table.sort_values("rank", kind="stable", ignore_index=True)


def _telemetry(ranks: pd.DataFrame, sampled: Sequence[DeviceTelemetry]) -> list[DeviceTelemetry | None]:
    """Return each rank's telemetry; None if it is unknown.

    Each host is processed separately, because only a GPU of its host can belong to a rank.
    """
    by_rank: list[DeviceTelemetry | None] = [None] * len(ranks)
    for host, rows_of_host in ranks.groupby("host", dropna=False):
        of_host = [device for device in sampled if pd.isna(host) or device.host is None or device.host == host]
        devices = [
            TraceDevice(
                row.id,
                int(row.device),
                none_if_null(row.gpu),
                none_if_null(row.host),
                none_if_null(row.uuid),
                frozenset(row.pids),
            )
            for row in rows_of_host.itertuples()
        ]
        owned = attribute(of_host, devices) if of_host else {}
        for position, device in zip(rows_of_host["position"], devices, strict=True):
            by_rank[position] = owned.get((device.recording_id, device.device))
    return by_rank


def _notes(tables: JobTables) -> list[str]:
    notes = []
    if missing := tables.missing:
        notes += [
            missing_ranks_note(missing, tables.world),
            "Map the missing traces into the same place. Then run reduce again.",
        ]
    if tables.unused_traces:
        notes.append(f"Traces that are copies, or whose rank has a later trace, and so are not used: {tables.unused_traces:,}.")
    if refused := tables.refused:
        name = refused[0].source.rpartition("/")[2]
        notes.append(f"Files that could not be read: {len(refused):,}. The first is {name}: {refused[0].why}")
    return notes
