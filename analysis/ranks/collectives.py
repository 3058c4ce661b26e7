"""Communication kernels of one recording: what they carry, which step they are of, and how much of them nothing overlaps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sawtooth.analysis.intervals import EMPTY, Intervals, intersect, overlaps, subtract, union
from sawtooth.analysis.run.model import SEND_RECEIVE

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

POINT_TO_POINT = re.compile(
    r"^i?(send|recv)|sendrecv|p2p", re.IGNORECASE
)  # pairs of a sender and a receiver: not one collective
LEVELS = 6  # the operator that carries a collective's arguments is within a few calls of the launch
DTYPE_BYTES = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "char": 1, "byte": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
_ALIASES = {  # the names of operators and kernels, without separators
    "allreduce": "allreduce", "allgather": "allgather", "reducescatter": "reducescatter", "alltoall": "alltoall",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
_ARGUMENTS = "name, dtype, in_elements, out_elements, group_name, group_size, group_ranks, sequence"


def load(recording: Recording, device: int, steps: pd.DataFrame) -> tuple[pd.DataFrame, Intervals]:
    """Return a device's communication kernels in order of start, and its exposed communication inside the steady window.

    Columns: gpu_op_id, start_ns, dur_ns, exposed_ns, step (a label that is the same on all ranks, None outside steps), counted, name,
    dtype, in_elements, out_elements, bytes, group, group_size, sequence; None where the trace does not tell.
    """
    frame = recording.frame(
        f"""WITH RECURSIVE comm AS (
              SELECT g.gpu_op_id, g.start_ns, g.dur_ns, g.cpu_op_id, s.step, g.name AS kernel
              FROM named_gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id)
              WHERE g.device = ? AND s.category = 'communication'),
            up AS (
              SELECT DISTINCT gpu_op_id, cpu_op_id, 0 AS level FROM comm WHERE cpu_op_id IS NOT NULL
                AND EXISTS (SELECT 1 FROM collectives WHERE cpu_op_id IS NOT NULL)
              UNION ALL
              SELECT up.gpu_op_id, o.parent_id, level + 1 FROM up JOIN cpu_ops o ON o.cpu_op_id = up.cpu_op_id
              WHERE o.parent_id IS NOT NULL AND level < {LEVELS}),
            described AS (
              SELECT gpu_op_id, -1 AS level, {_ARGUMENTS} FROM collectives WHERE gpu_op_id IS NOT NULL
              UNION ALL
              SELECT up.gpu_op_id, level, {_ARGUMENTS} FROM up JOIN collectives c ON c.cpu_op_id = up.cpu_op_id AND c.gpu_op_id IS NULL),
            one AS (SELECT gpu_op_id, {", ".join(f"arg_min({c}, level) AS {c}" for c in _ARGUMENTS.split(", "))} FROM described GROUP BY gpu_op_id)
        SELECT comm.*, one.* EXCLUDE (gpu_op_id) FROM comm LEFT JOIN one USING (gpu_op_id) ORDER BY start_ns, gpu_op_id""",
        [device],
    )
    exposed = _exposed(recording, device)
    ends = frame["start_ns"].to_numpy(np.int64) + frame["dur_ns"].to_numpy(np.int64)
    begun, ended, op, _ = overlaps(Intervals(frame["start_ns"].to_numpy(np.int64), ends), exposed)
    own = np.zeros(len(frame), np.int64)
    np.add.at(own, op, ended - begun)
    frame["exposed_ns"] = own
    label = dict(zip(steps["step"], step_labels(steps), strict=True))
    counted = set(steps.loc[steps["counted"].astype(bool), "step"])
    numbers = [None if pd.isna(s) else int(s) for s in frame["step"]]
    frame["step"] = pd.Series([label.get(s) if len(steps) else "" for s in numbers], dtype=object)
    frame["counted"] = np.array([s in counted for s in numbers], dtype=bool)
    frame["bytes"] = pd.array([_bytes(row) for row in frame.to_dict("records")], dtype="Int64")
    frame["has_arguments"] = frame["name"].notna()
    frame["name"] = [_kind(n if isinstance(n, str) else k) for n, k in zip(frame["name"], frame["kernel"], strict=True)]
    ranks = frame["group_ranks"].fillna("").astype(str)
    frame["group"] = frame["group_name"].fillna("").astype(str) + ranks.where(ranks == "", " " + ranks)
    return frame.drop(columns=["cpu_op_id", "group_name", "group_ranks"]), exposed


def step_labels(steps: pd.DataFrame) -> pd.Series:
    """Return the steps' labels, by which the same step is known on all ranks: their names, or their places where names repeat."""
    if steps["name"].is_unique:
        return steps["name"]
    return steps["step"].map(lambda step: f"{step} of {len(steps)}")


def _exposed(recording: Recording, device: int) -> Intervals:
    def of(sql: str) -> Intervals:
        rows = recording.frame(sql, [device])
        return union(rows["start_ns"], rows["end_ns"]) if len(rows) else EMPTY

    return intersect(
        of("SELECT start_ns, end_ns FROM segments WHERE device = ? AND owner = 'exposed_comm'"),
        of("SELECT start_ns, end_ns FROM windows WHERE device = ?"),
    )


def _kind(name: str) -> str:
    """Return what a collective is called everywhere: ``_allgather_base``, ``all_gather`` and ``ncclDevKernel_AllGather_RING_LL`` are one."""
    if POINT_TO_POINT.search(name.removeprefix("nccl:")):
        return SEND_RECEIVE
    flat = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((kind for alias, kind in _ALIASES.items() if alias in flat), name)


def _bytes(row: dict[str, Any]) -> int | None:
    """Return the size that bandwidths are counted by: the larger of input and output, which is the whole that a gather or scatter moves."""
    each = DTYPE_BYTES.get(str(row["dtype"]).lower()) if isinstance(row["dtype"], str) else None
    counts = [int(n) for n in (row["in_elements"], row["out_elements"]) if pd.notna(n)]
    return each * max(counts) if each and counts else None


def exposed_causes(rows: pd.DataFrame, exposed: Intervals) -> dict[str, Intervals]:
    """Cut one rank's exposed communication by cause: comm_wait, comm_transfer, unattributed. They are disjoint and make up all of it.

    Where several collectives run at once, an instant in which any of them transfers is transfer.
    """
    start = rows["start_ns"].to_numpy(np.int64)
    end = start + rows["dur_ns"].to_numpy(np.int64)
    come = end - rows["shortest_ns"].to_numpy(np.int64)
    transfer, known = union(come, end), union(start, end)
    parts = {
        "comm_wait": intersect(subtract(known, transfer), exposed),
        "comm_transfer": intersect(transfer, exposed),
        "unattributed": subtract(exposed, known),
    }
    return {cause: part for cause, part in parts.items() if part.total}
