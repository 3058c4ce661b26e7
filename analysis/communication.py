"""Several ranks side by side: how long each computes and waits, and who is late to collectives.

A collective ends for all ranks at about the same time, so the rank that comes last spends the least time in it. What a rank spends beyond the
shortest of the ranks is waiting (``comm_wait``), the rest is transfer. Collectives are matched by process group and order: the n-th of a
name on one rank is the n-th on the others; where the counts differ they cannot be matched and nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analysis.recordings import Library, Recording
from analysis.results import RankResult

CLEARLY = 0.02  # of the step: differences between ranks below two percent change from run to run

_COLLECTIVES = """
SELECT coalesce(c.group_name, '') AS group_name, n.name, g.start_ns, g.dur_ns, s.step
FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) JOIN names n USING (name_id) LEFT JOIN collectives c ON c.gpu_op_id = g.gpu_op_id
WHERE g.device = ? AND s.category = 'communication' ORDER BY g.start_ns, g.gpu_op_id"""


def side_by_side(ranks: list[RankResult]) -> pd.DataFrame:
    """Return one row per device: label parts rank and device, step_ms (mean), and the ledger's owners in ms per step."""
    rows = []
    for rank in ranks:
        row: dict[str, object] = {"rank": rank.rank, "device": rank.device, "step_ms": rank.best.mean_ms}
        for line in rank.ledger:
            key = f"{line.owner}_ms"
            row[key] = float(str(row.get(key, 0.0))) + (line.ms_per_step or 0.0)
        rows.append(row)
    return pd.DataFrame(rows).fillna({c: 0.0 for c in {k for r in rows for k in r} if c.endswith("_ms") and c != "step_ms"})


def collectives(recording: Recording, device: int) -> pd.DataFrame:
    """Return a device's communication kernels in order: group_name, name, start_ns, dur_ns, step, and nth of its group and name."""
    rows = recording.frame(_COLLECTIVES, [device])
    return rows.assign(nth=rows.groupby(["group_name", "name"]).cumcount())


def matched(by_rank: Mapping[int, pd.DataFrame]) -> pd.DataFrame:
    """Match collectives over ranks; one row per collective and rank with wait_ns = its duration beyond the shortest.

    Names whose counts differ between ranks are left out. Empty with fewer than two ranks.
    """
    if len(by_rank) < 2:
        return pd.DataFrame(columns=["rank", "group_name", "name", "nth", "dur_ns", "wait_ns", "step"])
    rows = pd.concat([frame.assign(rank=rank) for rank, frame in by_rank.items()], ignore_index=True)
    counts = rows.groupby(["group_name", "name", "rank"]).size().unstack("rank")
    equal = counts[counts.notna().all(axis=1) & (counts.nunique(axis=1) == 1)].index
    rows = rows[pd.MultiIndex.from_frame(rows[["group_name", "name"]]).isin(equal)]
    shortest = rows.groupby(["group_name", "name", "nth"])["dur_ns"].transform("min")
    return rows.assign(wait_ns=rows["dur_ns"] - shortest).reset_index(drop=True)


def waits(ranks: list[RankResult], library: Library) -> pd.DataFrame:
    """Return per rank what it waits for others in collectives: rank, collectives, communication_ms and wait_ms per counted step.

    Empty where collectives cannot be matched.
    """
    frames = {}
    for rank in ranks:
        if rank.rank is None:
            continue
        with library.open(rank.recording_id) as recording:
            rows = collectives(recording, rank.device)
        counted = set(rank.counted["step"].tolist())
        frames[rank.rank] = rows[rows["step"].isin(counted)] if counted else rows
    steps = {rank.rank: max(len(rank.counted), 1) for rank in ranks}
    found = matched({r: f.assign(nth=f.groupby(["group_name", "name"]).cumcount()) for r, f in frames.items()})
    if found.empty:
        return pd.DataFrame(columns=["rank", "collectives", "communication_ms", "wait_ms"])
    sums = (
        found.groupby("rank")
        .agg(collectives=("nth", "size"), communication=("dur_ns", "sum"), wait=("wait_ns", "sum"))
        .reset_index()
    )
    per = sums["rank"].map(steps)
    return pd.DataFrame(
        {
            "rank": sums["rank"],
            "collectives": sums["collectives"] / per,
            "communication_ms": sums["communication"] / 1e6 / per,
            "wait_ms": sums["wait"] / 1e6 / per,
        }
    )


def straggler(waits_: pd.DataFrame, step_ms: float | None) -> tuple[int, float] | None:
    """Return the rank the others wait for and the ms per step that the longest-waiting rank loses to it; None where no rank stands out."""
    if len(waits_) < 2 or not step_ms:
        return None
    ordered = waits_.sort_values("wait_ms")
    late, longest = ordered.iloc[0], ordered.iloc[-1]
    lost = float(longest["wait_ms"] - late["wait_ms"])
    return (int(late["rank"]), lost) if lost >= CLEARLY * step_ms else None
