"""Collectives met across the ranks of a run: who waited for whom, what the transfer took, and how fast the links were.

A collective ends on all its ranks when the last one has come, so its shortest duration over the ranks is the transfer, and what a
rank's kernel lasts longer is that rank waiting. Durations decide, never starts on different hosts' clocks. Recordings of one rank know
nothing of this: ranks meet when a run is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis import timeline_store
from analysis.collectives import exposed_causes, load, match
from analysis.intervals import Intervals, overlaps
from analysis.run_result import Communication, LedgerRow, RankResult, RankWaits, Straggler

if TYPE_CHECKING:
    from analysis.recordings import Library, Recording

STRAGGLER_SHARE = (
    0.03  # of a step: kernels of punctual ranks differ by some 10 µs each, and a fix below 3 % is lost in the noise
)
STRAGGLER_LEADS = 0.5  # of all waiting: a rank that causes less than half of it is one of several late ones
OWN_WAITS = ("comm_wait", "comm_transfer")  # causes that other ranks bring: never why a rank is late itself

# Bytes on the wire per byte of the collective, for n ranks: what NCCL's own tests call the bus bandwidth factor.
BUS_FACTORS = {
    "allreduce": lambda n: 2 * (n - 1) / n,
    "allgather": lambda n: (n - 1) / n,
    "reducescatter": lambda n: (n - 1) / n,
    "alltoall": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "reduce": lambda n: 1.0,
}


def meet(library: Library, ranks: Sequence[RankResult]) -> tuple[list[RankResult], Communication | None]:
    """Match the collectives of ``ranks``; return the ranks with exposed communication split by cause, and what was found.

    The parts of a rank's exposed communication sum to it exactly. None where fewer than two ranks are there.
    """
    if len({(rank.recording_id, rank.device) for rank in ranks}) < 2:
        return list(ranks), None
    kernels, exposed = [], []
    for rank in ranks:
        with library.open(rank.recording_id) as recording:
            rows, mine = load(recording, rank.device, rank.steps)
        kernels.append(rows)
        exposed.append(mine)
    matched, offsets, notes = match(kernels, [rank.rank for rank in ranks], [rank.info.get("world_size") for rank in ranks])
    matched["exposed_wait_ns"] = 0
    for position in range(len(ranks)):
        mine_at = matched.index[matched["position"] == position]
        matched.loc[mine_at, "exposed_wait_ns"] = _exposed_waits(matched.loc[mine_at], exposed[position])
    split = [_split(rank, matched[matched["position"] == position], exposed[position]) for position, rank in enumerate(ranks)]
    waits = tuple(_waits(position, rank, matched, kernels[position], offsets[position]) for position, rank in enumerate(split))
    unmatched = sum(map(len, kernels)) - len(matched)
    return split, Communication(matched, waits, _straggler(split, waits), unmatched, notes)


def _split(rank: RankResult, rows: pd.DataFrame, exposed: Intervals) -> RankResult:
    """Replace the ledger's exposed communication without a cause by waiting, transfer and what stays unknown."""
    causes = exposed_causes(rows, exposed)
    whole = [row for row in rank.ledger if row.owner == "exposed_comm"]
    if not whole or not any(cause in causes for cause in OWN_WAITS):
        return rank
    total = exposed.total
    estimates = [row.ms_per_step_unprofiled_est for row in whole if row.ms_per_step_unprofiled_est is not None]
    counted = len(rank.counted)
    rest = [row for row in rank.ledger if row.owner != "exposed_comm"]
    split = [
        replace(
            whole[0],
            cause=cause,
            ns=part.total,
            ms_per_step=part.total / counted / 1e6 if counted else None,
            # the replay keeps each collective as long as recorded, so the recorded proportions hold for its column
            ms_per_step_unprofiled_est=sum(estimates) * part.total / total if estimates else None,
            share=part.total / rank.window_ns,
        )
        for cause, part in causes.items()
    ]
    return replace(rank, ledger=sorted([*rest, *split], key=lambda row: -row.ns), exposed_causes=causes)


_SENTENCES = {
    "comm_wait": "A collective ran without computation and waited for a rank that had not come to it yet.",
    "comm_transfer": "A collective ran without computation; all its ranks had come, so this is the transfer.",
}


def tell(recording: Recording, rank: RankResult) -> None:
    """Let queries of ``recording`` see the exposed communication of ``rank`` by cause, in ``gaps`` and ``causes``, as its run's ranks tell it."""
    if not rank.exposed_causes:
        return
    which = f"device = {rank.device} AND owner = 'exposed_comm'"
    gaps = recording.frame(f"SELECT * FROM gaps WHERE {which} ORDER BY start_ns")
    pieces = []
    for cause, part in rank.exposed_causes.items():
        start, end, row, _ = overlaps(Intervals(gaps["start_ns"].to_numpy(np.int64), gaps["end_ns"].to_numpy(np.int64)), part)
        piece = gaps.iloc[row].assign(start_ns=start, end_ns=end, cause=cause)
        if cause in _SENTENCES:
            piece = piece.assign(evidence=_SENTENCES[cause], confidence="high")
        pieces.append(piece)
    recording.replace_rows("gaps", which, pd.concat(pieces, ignore_index=True))
    first, last = recording.rows("SELECT first_ns, last_ns FROM recording")[0]
    rows = f"(SELECT * FROM {timeline_store.GAPS} WHERE {which})"
    sums = timeline_store.SUMS.format(
        source="gaps", owner="owner", origin=first, cell=timeline_store.cell_ns(last - first), rows=rows
    )
    recording.replace_rows("lane_sums", f"source = 'gaps' AND {which}", recording.frame(sums))
    told = [
        {
            "device": rank.device,
            "owner": row.owner,
            "cause": row.cause,
            "ns": row.ns,
            "unprofiled_ns_per_step": None if row.ms_per_step_unprofiled_est is None else row.ms_per_step_unprofiled_est * 1e6,
            "loses_ns_per_step": None,
        }
        for row in rank.ledger
        if row.owner == "exposed_comm"
    ]
    recording.replace_rows("causes", which, pd.DataFrame(told).astype({"loses_ns_per_step": float}))


def _exposed_waits(rows: pd.DataFrame, exposed: Intervals) -> NDArray[np.int64]:
    """Return how much of each row's waiting had no computation beside it."""
    start, wait = rows["start_ns"].to_numpy(np.int64), rows["wait_ns"].to_numpy(np.int64)
    begun, ended, row, _ = overlaps(Intervals(start, start + wait), exposed)
    found = np.zeros(len(rows), np.int64)
    np.add.at(found, row, ended - begun)
    return found


def _waits(position: int, rank: RankResult, matched: pd.DataFrame, kernels: pd.DataFrame, offset: int | None) -> RankWaits:
    steps = max(len(rank.counted), 1)
    counted = matched[matched["counted"]]
    mine = counted[counted["position"] == position]
    others = counted[counted["collective"].isin(mine.loc[mine["last"], "collective"]) & (counted["position"] != position)]
    late = others.groupby("collective")["exposed_wait_ns"].mean().sum()
    busy = int(kernels.loc[kernels["counted"], "dur_ns"].sum())
    hidden = busy - int(kernels.loc[kernels["counted"], "exposed_ns"].sum())
    return RankWaits(
        position,
        rank.rank,
        rank.device,
        float(mine["wait_ns"].sum()) / steps / 1e6,
        float(late) / steps / 1e6,
        float(mine["last"].mean()) if len(mine) else None,
        hidden / busy if busy else None,
        offset,
    )


def _straggler(ranks: Sequence[RankResult], waits: Sequence[RankWaits]) -> Straggler | None:
    late = sorted(waits, key=lambda w: -w.late_ms)
    total = sum(w.late_ms for w in waits)
    if not total or late[0].late_ms <= STRAGGLER_LEADS * total:
        return None
    worst = late[0]
    step = ranks[worst.position].metrics["step_time_ms"].value
    if not step or worst.late_ms < STRAGGLER_SHARE * step:
        return None
    own = _by_cause(ranks[worst.position].ledger)
    others = [_by_cause(rank.ledger) for i, rank in enumerate(ranks) if i != worst.position]
    excess = {key: ms - float(np.median([o.get(key, 0.0) for o in others])) for key, ms in own.items()}
    key = max(excess, key=lambda k: excess[k], default=None)
    if key is not None and excess[key] < STRAGGLER_SHARE * step:
        key = None
    owner, cause = key if key else (None, None)
    return Straggler(
        worst.position, worst.rank, worst.late_ms, worst.late_ms / step, worst.last_share or 0.0,
        owner, cause, excess[key] if key else None,
    )  # fmt: skip


def _by_cause(ledger: Sequence[LedgerRow]) -> dict[tuple[str, str | None], float]:
    rows: dict[tuple[str, str | None], float] = {}
    for row in ledger:
        if row.owner != "exposed_comm" and row.cause not in OWN_WAITS:
            rows[row.owner, row.cause] = rows.get((row.owner, row.cause), 0.0) + (row.ms_per_step or 0.0)
    return rows


def collective_table(found: Communication, steps: int) -> pd.DataFrame:
    """Return one row per kind of collective: name, dtype, group, group_size, bytes, calls_per_step, transfer_ms, mean_wait_ms,
    longest_wait_ms (of one call), wait_ms_per_step (mean over ranks), algorithm_gb_s, bus_gb_s, overlap_share; most waiting first.

    Bandwidths are decimal GB/s of the shortest duration over the ranks, None where size or kind is not known.
    """
    rows = found.rows[found.rows["counted"]] if steps else found.rows
    out = []
    kinds = rows.fillna({"dtype": "", "group": ""}).groupby(["name", "dtype", "group", "bytes", "group_size"], dropna=False)
    for (name, dtype, group, size, members), mine in kinds:
        once = mine.drop_duplicates("collective")
        transfer_ns = float(once["shortest_ns"].median())
        known = pd.notna(size) and size > 0 and transfer_ns > 0
        algorithm = float(size) / transfer_ns if known else None
        factor = BUS_FACTORS.get(str(name)) if pd.notna(members) and members > 1 else None
        out.append(
            {
                "name": name,
                "dtype": dtype or None,
                "group": group or None,
                "group_size": int(members) if pd.notna(members) else None,
                "bytes": int(size) if pd.notna(size) else None,
                "calls_per_step": len(once) / max(steps, 1),
                "transfer_ms": transfer_ns / 1e6,
                "mean_wait_ms": float(mine["wait_ns"].mean()) / 1e6,
                "longest_wait_ms": float(mine["wait_ns"].max()) / 1e6,
                "wait_ms_per_step": float(mine.groupby("collective")["wait_ns"].mean().sum()) / max(steps, 1) / 1e6,
                "algorithm_gb_s": algorithm,
                "bus_gb_s": algorithm * factor(int(members)) if algorithm is not None and factor else None,
                "overlap_share": 1 - float(mine["exposed_ns"].sum()) / float(mine["dur_ns"].sum())
                if mine["dur_ns"].sum()
                else None,
            }
        )
    return pd.DataFrame(out, columns=list(_TABLE)).sort_values("wait_ms_per_step", ascending=False, ignore_index=True)


_TABLE = (
    "name", "dtype", "group", "group_size", "bytes", "calls_per_step", "transfer_ms", "mean_wait_ms", "longest_wait_ms",
    "wait_ms_per_step", "algorithm_gb_s", "bus_gb_s", "overlap_share",
)  # fmt: skip


def side_by_side(ranks: Sequence[RankResult]) -> pd.DataFrame:
    """Return one row per device: rank, device, step_ms (mean), and the ledger in ms per step as ``{owner}_ms``.

    Exposed communication whose cause is known stands as ``comm_wait_ms`` and ``comm_transfer_ms`` instead.
    """
    rows = []
    for rank in ranks:
        parts: dict[str, float] = {}
        for line in rank.ledger:
            key = f"{line.cause if line.cause in OWN_WAITS and line.owner == 'exposed_comm' else line.owner}_ms"
            parts[key] = parts.get(key, 0.0) + (line.ms_per_step or 0.0)
        rows.append({"rank": rank.rank, "device": rank.device, "step_ms": rank.best.mean_ms, **parts})
    table = pd.DataFrame(rows)
    owners = [column for column in table if column not in ("rank", "device", "step_ms")]
    return table.fillna(dict.fromkeys(owners, 0.0))
