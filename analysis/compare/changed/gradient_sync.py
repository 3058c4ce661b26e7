"""Find after which micro-batches of a data-parallel step the gradients are reduced.

A step that accumulates gradients needs one reduction, after its last micro-batch. ``no_sync`` prevents the other reductions.
"""

from __future__ import annotations

import numpy as np

from sawtooth.analysis.ranks.collectives import load
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.store.library import Recording

FORWARD = "DistributedDataParallel.forward"
# Share of the bytes of a step's largest reduction. Reductions of a loss or a norm have far fewer bytes.
LARGE_REDUCTION_SHARE = 0.5
_PASSES = """SELECT s.name, o.start_ns FROM steps s JOIN named_cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns
    WHERE s.device = ? AND s.counted AND o.name = ? ORDER BY o.start_ns"""


def gradient_sync(recording: Recording, rank: RankResult) -> str | None:
    """Return after which micro-batches of a step the rank reduces its gradients, in words.

    None if a step has fewer than two forward passes, or if no reductions are recorded.
    """
    if not recording.named(f"^{FORWARD}$"):
        return None
    starts: dict[str, list[int]] = {}
    for step, start_ns in recording.rows(_PASSES, [rank.device, FORWARD]):
        starts.setdefault(step, []).append(start_ns)
    rows, _ = load(recording, rank.device, rank.steps)
    rows = rows[rows["counted"] & (rows["name"] == "allreduce") & rows["launch_ns"].notna() & rows["step"].isin(list(starts))]
    micro = round(float(np.median([len(micro_starts) for micro_starts in starts.values()]))) if starts else 0
    if micro < 2 or rows.empty:
        return None
    size = rows["bytes"] if rows["bytes"].notna().all() else rows["dur_ns"]
    nth = [
        int(np.searchsorted(starts[step], at, side="right")) for step, at in zip(rows["step"], rows["launch_ns"], strict=True)
    ]
    moved = rows.assign(size=size.astype(float), nth=nth).groupby(["step", "nth"])["size"].sum()
    large = moved[moved >= LARGE_REDUCTION_SHARE * moved.groupby("step").transform("max")]
    reduced = round(float(large.groupby("step").size().median()))
    if reduced >= micro:
        return f"after each of {micro} micro-batches"
    return f"after the last of {micro} micro-batches" if reduced == 1 else f"after {reduced} of {micro} micro-batches"
