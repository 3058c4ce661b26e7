"""Collectives matched across the ranks of a run: waits, transfer times and link speeds.

A collective ends on all its ranks after the last rank has arrived. So its shortest duration over the ranks is the transfer time,
and the rest of a rank's duration is waiting. Only durations are compared, because hosts have different clocks. One rank's
recording cannot show the waits, so the analysis of the whole run matches the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.intervals import Intervals, overlaps
from sawtooth.analysis.knowledge.causes import BETWEEN_RANKS
from sawtooth.analysis.ranks.clocks import RankClock
from sawtooth.analysis.ranks.collectives import exposed_causes, load
from sawtooth.analysis.ranks.matching import match
from sawtooth.analysis.ranks.missing_ranks import missing_ranks, missing_ranks_note
from sawtooth.analysis.run.job import Communication, RankWaits
from sawtooth.analysis.run.model import LedgerRow, RankResult

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Library

# Bytes on a rank's link per byte of the collective, for n ranks. NCCL's tests call this ratio the bus bandwidth factor.
BUS_FACTORS: dict[str, Callable[[int], float]] = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
}


def split_communication(library: Library, ranks: Sequence[RankResult]) -> tuple[list[RankResult], Communication | None]:
    """Match the collectives of ``ranks``; return ranks with split exposed communication, and the matches.

    The parts sum exactly to the rank's exposed communication. The matches are None if there are fewer than two ranks.
    """
    if len({(rank.recording_id, rank.device) for rank in ranks}) < 2:
        return list(ranks), None
    kernels, exposed = [], []
    for rank in ranks:
        with library.open(rank.recording_id) as recording:
            rows, exposed_of_rank = load(recording, rank.device, rank.steps)
        kernels.append(rows)
        exposed.append(exposed_of_rank)
    numbers, worlds = [rank.rank for rank in ranks], [rank.trace.world_size for rank in ranks]
    matched, clocks, notes = match(kernels, numbers, worlds)
    world = max((world for world in worlds if world), default=None)
    if missing := missing_ranks(numbers, world):
        notes += (missing_ranks_note(missing, world),)
    matched["exposed_wait_ns"] = 0
    for position in range(len(ranks)):
        rows_of_rank = matched.index[matched["position"] == position]
        matched.loc[rows_of_rank, "exposed_wait_ns"] = _exposed_waits(matched.loc[rows_of_rank], exposed[position])
    split = [
        _with_split_communication(rank, matched[matched["position"] == position], exposed[position])
        for position, rank in enumerate(ranks)
    ]
    waits = tuple(_rank_waits(position, rank, matched, clocks[position]) for position, rank in enumerate(split))
    unmatched = sum(map(len, kernels)) - len(matched)
    return split, Communication(matched, waits, unmatched, notes)


def _with_split_communication(rank: RankResult, rows: pd.DataFrame, exposed: Intervals) -> RankResult:
    """Replace the ledger's exposed communication without a cause by waiting, transfer and the rest."""
    causes = exposed_causes(rows, exposed)
    exposed_rows = [row for row in rank.ledger if row.owner == "exposed_comm"]
    if not exposed_rows or not any(cause in causes for cause in BETWEEN_RANKS):
        return rank
    total = exposed.total
    estimates = [row.ms_per_step_unprofiled_est for row in exposed_rows if row.ms_per_step_unprofiled_est is not None]
    counted = len(rank.counted)
    other_rows = [row for row in rank.ledger if row.owner != "exposed_comm"]
    split = [
        replace(
            exposed_rows[0],
            cause=cause,
            ns=part.total,
            ms_per_step=part.total / counted / 1e6 if counted else None,
            # The replay does not change the length of collectives, so the recorded proportions apply.
            ms_per_step_unprofiled_est=sum(estimates) * part.total / total if estimates else None,
            share=part.total / rank.window_ns,
        )
        for cause, part in causes.items()
    ]
    return replace(rank, ledger=sorted([*other_rows, *split], key=lambda row: -row.ns), exposed_causes=causes)


def _exposed_waits(rows: pd.DataFrame, exposed: Intervals) -> NDArray[np.int64]:
    """Return the time of each row, in ns, in which the rank waited and ran no computation.

    ``rows`` are ordered by start. If several rows wait at once, the first one gets the time.
    """
    start = rows["start_ns"].to_numpy(np.int64)
    end = start + rows["wait_ns"].to_numpy(np.int64)
    previous_end = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))
    starts, stops, row, _ = overlaps(Intervals(np.minimum(np.maximum(start, previous_end), end), end), exposed)
    exposed_ns = np.zeros(len(rows), np.int64)
    np.add.at(exposed_ns, row, stops - starts)
    return exposed_ns


def _rank_waits(position: int, rank: RankResult, matched: pd.DataFrame, clock: RankClock | None) -> RankWaits:
    """Return a rank's waits for other ranks, and the waits of other ranks for it, per counted step."""
    steps = max(len(rank.counted), 1)
    counted = matched[matched["counted"]]
    own_rows = counted[counted["position"] == position]
    peer_rows = counted[
        counted["collective"].isin(own_rows.loc[own_rows["last"], "collective"]) & (counted["position"] != position)
    ]
    late = peer_rows.groupby("collective")["exposed_wait_ns"].mean().sum()
    return RankWaits(
        position=position,
        rank=rank.rank,
        device=rank.device,
        wait_ms=float(own_rows["wait_ns"].sum()) / steps / 1e6,
        late_ms=float(late) / steps / 1e6,
        last_share=float(own_rows["last"].mean()) if len(own_rows) else None,
        clock_offset_ns=clock.offset_ns if clock is not None else None,
    )


def _column_prefix(line: LedgerRow) -> str:
    if line.owner == "exposed_comm" and line.cause in BETWEEN_RANKS:
        return line.cause
    return f"idle_{line.cause}" if line.owner == "idle" and line.cause is not None else line.owner


def collectives_of(library: Library, rank: RankResult) -> Communication:
    """Return the collectives of one rank alone, without waits, because one rank cannot show them.

    The durations contain the waits for other ranks.
    """
    with library.open(rank.recording_id) as recording:
        rows, _ = load(recording, rank.device, rank.steps)
    rank_rows = rows.assign(
        collective=range(len(rows)), position=0, shortest_ns=rows["dur_ns"], wait_ns=0, last=False, exposed_wait_ns=0, ranks=1
    )
    return Communication(rank_rows, (), 0)


def communicates(library: Library, recording_id: str) -> bool:
    """Return whether a recording has communication kernels."""
    with library.open(recording_id) as recording:
        return bool(recording.rows("SELECT 1 FROM kernel_classes WHERE category = 'communication' LIMIT 1"))


def collective_table(communication: Communication, steps: int) -> pd.DataFrame:
    """Return one row per kind of collective; those with the most waiting come first.

    The columns are name, dtype, group, group_size, bytes, calls_per_step, transfer_ms, mean_wait_ms, longest_wait_ms (of one
    call), wait_ms_per_step (mean over ranks), ms_per_step and exposed_ms_per_step (mean over ranks, with waits), algorithm_gb_s,
    bus_gb_s, overlap_share. Bandwidths are in decimal GB/s, computed from the shortest duration over the ranks; None if the
    size or the kind is unknown.
    """
    rows = communication.rows
    if rows.empty:  # A reduced job may have groups, but no matched collective.
        return pd.DataFrame(columns=list(_TABLE_COLUMNS))
    rows = rows[rows["counted"]] if steps else rows
    table = []
    kinds = rows.fillna({"dtype": "", "group": ""}).groupby(["name", "dtype", "group", "bytes", "group_size"], dropna=False)
    for (name, dtype, group, size, members), rows_of_kind in kinds:
        collectives = rows_of_kind.drop_duplicates("collective")
        transfer_ns = float(collectives["shortest_ns"].median())
        has_size = pd.notna(size) and size > 0 and transfer_ns > 0
        algorithm = float(size) / transfer_ns if has_size else None
        factor = BUS_FACTORS.get(str(name)) if pd.notna(members) and members > 1 else None
        table.append(
            {
                "name": name,
                "dtype": dtype or None,
                "group": group or None,
                "group_size": int(members) if pd.notna(members) else None,
                "bytes": int(size) if pd.notna(size) else None,
                "calls_per_step": len(collectives) / max(steps, 1),
                "transfer_ms": transfer_ns / 1e6,
                "mean_wait_ms": float(rows_of_kind["wait_ns"].mean()) / 1e6,
                "longest_wait_ms": float(rows_of_kind["wait_ns"].max()) / 1e6,
                "wait_ms_per_step": float(rows_of_kind.groupby("collective")["wait_ns"].mean().sum()) / max(steps, 1) / 1e6,
                "ms_per_step": float(rows_of_kind["dur_ns"].sum()) / rows_of_kind["position"].nunique() / max(steps, 1) / 1e6,
                "exposed_ms_per_step": float(rows_of_kind["exposed_ns"].sum())
                / rows_of_kind["position"].nunique()
                / max(steps, 1)
                / 1e6,
                "algorithm_gb_s": algorithm,
                "bus_gb_s": algorithm * factor(int(members)) if algorithm is not None and factor else None,
                "overlap_share": 1 - float(rows_of_kind["exposed_ns"].sum()) / float(rows_of_kind["dur_ns"].sum())
                if rows_of_kind["dur_ns"].sum()
                else None,
            }
        )
    return pd.DataFrame(table, columns=list(_TABLE_COLUMNS)).sort_values("wait_ms_per_step", ascending=False, ignore_index=True)


_TABLE_COLUMNS = (
    "name", "dtype", "group", "group_size", "bytes", "calls_per_step", "transfer_ms", "mean_wait_ms", "longest_wait_ms",
    "wait_ms_per_step", "ms_per_step", "exposed_ms_per_step", "algorithm_gb_s", "bus_gb_s", "overlap_share",
)  # fmt: skip


def side_by_side(ranks: Sequence[RankResult], *, unprofiled: bool = False) -> pd.DataFrame:
    """Return one row per device: rank, device, step_ms (mean) and the ledger as ``{owner}_ms``.

    Times are ms per step, or ms in the whole window if there are no steps. Exposed communication with a known cause is in the
    columns ``comm_wait_ms`` and ``comm_transfer_ms``, and idle time in ``idle_{cause}_ms``. With ``unprofiled``, times come
    from each rank's replay without the profiler's cost, if there is one.
    """
    rows = []
    for rank in ranks:
        parts: dict[str, float] = {}
        for line in rank.ledger:
            key = f"{_column_prefix(line)}_ms"
            recorded = line.ms_per_step if line.ms_per_step is not None else line.ns / 1e6
            ms = line.ms_per_step_unprofiled_est if unprofiled else recorded
            parts[key] = parts.get(key, 0.0) + (ms or 0.0)
        rows.append(
            {
                "rank": rank.rank,
                "device": rank.device,
                "step_ms": sum(parts.values()) if unprofiled or rank.best.mean_ms is None else rank.best.mean_ms,
                **parts,
            }
        )
    table = pd.DataFrame(rows)
    owners = [column for column in table if column not in ("rank", "device", "step_ms")]
    return table.fillna(dict.fromkeys(owners, 0.0))
