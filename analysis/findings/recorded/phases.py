"""GPU work by the phase of a step that launched it: forward, loss, backward, optimizer and copies.

Autograd's nodes, the optimizer's annotations and the names of loss operators separate the phases.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE, launched_by_optimizer, launched_inside
from sawtooth.analysis.knowledge.owners import TENSOR_CORES_USED
from sawtooth.analysis.store.rank_view import RankView

LOSS = r"^aten::\w*loss\w*$"  # Matches PyTorch's own losses. Their backward passes run in autograd's nodes.
COPIES = ("memcpy", "memset")
PHASE_ORDER = ("forward", "loss", "backward", "optimizer", "copies")
_WORK = (
    f"SELECT gpu_op_id, category, dur_ns, tensor_cores IN {TENSOR_CORES_USED} AS on_tensor_cores "
    "FROM step_gpu_ops WHERE device = $device AND summed"
)


def work_by_phase(rank: RankView) -> pd.DataFrame:
    """Return GPU work by phase (in PHASE_ORDER) and category.

    Columns: phase, name (the category), total_ns, tensor_core_ns, ms per step, and the share of all work. Each operation
    counts once. "forward" is all work that no annotation contains, including a loss without PyTorch's loss operators. Empty
    if the trace marks neither a backward pass nor an optimizer step, because the phases cannot be separated then.
    """
    work = rank.frame(_WORK)
    ids, device, recording = work["gpu_op_id"].to_numpy(np.int64), rank.device, rank.recording
    optimizer = np.isin(ids, launched_by_optimizer(recording, device))
    backward = np.isin(ids, launched_inside(recording, device, f"^{AUTOGRAD_NODE}"))
    if not (optimizer | backward).any():
        return pd.DataFrame(columns=["phase", "name", "total_ns", "tensor_core_ns", "ms", "share"])
    loss = np.isin(ids, launched_inside(recording, device, LOSS))
    copies = work["category"].isin(COPIES).to_numpy(bool)
    phase = np.select([optimizer, backward, loss, copies], ["optimizer", "backward", "loss", "copies"], "forward")
    sums = (
        work.assign(phase=phase, tensor_core_ns=work["dur_ns"].where(work["on_tensor_cores"].fillna(False).astype(bool), 0))
        .groupby(["phase", "category"], as_index=False)[["dur_ns", "tensor_core_ns"]]
        .sum()
        .rename(columns={"category": "name", "dur_ns": "total_ns"})
    )
    rows = sums.sort_values("phase", key=lambda phases: phases.map(PHASE_ORDER.index), kind="stable", ignore_index=True)
    return rows.assign(ms=rows["total_ns"] / 1e6 / rank.per, share=rows["total_ns"] / rows["total_ns"].sum())
