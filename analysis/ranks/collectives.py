"""Communication kernels of one recording: arguments, step, and exposed time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sawtooth.analysis.intervals import EMPTY, Intervals, difference, intersect, overlaps, union
from sawtooth.analysis.run.job import SEND_RECEIVE

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

# Matches operations between one sender and one receiver, which are not collectives.
POINT_TO_POINT = re.compile(r"^i?(send|recv)|sendrecv|p2p", re.IGNORECASE)
# Levels in the call tree between a launch and the operator that records the collective's arguments.
MAX_LEVELS_ABOVE_LAUNCH = 6
DTYPE_BYTES = {
    "double": 8, "long": 8, "float": 4, "int": 4, "half": 2, "bfloat16": 2, "short": 2, "char": 1, "byte": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
_ALIASES = {  # The keys occur in names of operators and kernels after lower-casing and removal of separators.
    "allreduce": "allreduce", "allgather": "allgather", "reducescatter": "reducescatter", "alltoall": "alltoall",
    "broadcast": "broadcast", "reduce": "reduce",
}  # fmt: skip
_ARGUMENTS = "name, dtype, in_elements, out_elements, group_name, group_description, group_size, group_ranks, sequence"
# Names of operators, annotations and kernels that show the purpose of exchanges between ranks. Expert parallelism ("ep") has
# operators that choose experts and multiply their matrices. The names of context parallelism ("cp") come from DeepSpeed's Ulysses,
# ring attention and TransformerEngine.
PURPOSE_PATTERNS = {
    "ep": r"(?i)^aten::(topk|argsort|_grouped_mm|_scaled_grouped_mm)$|^_AllToAll$|moe|expert|deep_ep|grouped_gemm",
    "cp": r"(?i)ring_?(flash_?)?att|AttnFuncWithCP|SeqAllToAll|zigzag|context_parallel",
}
# PyTorch's name of a forward pass in a pipeline schedule: "PP:2F0" is the first microbatch in model chunk 2.
FORWARD_PASS = r"^PP:(\d+)F(\d+)$"
BACKWARD_PREFIX = "autograd::engine::evaluate_function"  # The names of backward operators begin with it.


def load(recording: Recording, device: int, steps: pd.DataFrame) -> tuple[pd.DataFrame, Intervals]:
    """Return a device's communication kernels, ordered by start, and its exposed communication.

    Exposed communication is limited to the steady window. The columns of the kernels are:

    * gpu_op_id, start_ns, dur_ns, exposed_ns, name, kernel, launch_ns, and blocks (thread blocks of the kernel);
    * step (a label that is the same on all ranks, None outside steps), and counted;
    * dtype, in_elements, out_elements, bytes, group, description, group_size, sequence, and has_arguments;
    * forward: whether the kernel was launched before the step's backward pass; after_backward: whether it was launched after it;
    * sends, receives and peer: the numbers of sends and receives in a point-to-point kernel, and the other rank;
    * serves: the purpose of an exchange, "ep" (experts) or "cp" (context), if operators of the trace show it;
    * chunks and microbatches of a pipeline, if the trace names the pipeline's passes.

    Values that the trace does not contain are None.
    """
    # Most traces have no communication. This check spares them a join that takes 100 MB for 20 million events.
    has_communication = recording.rows("SELECT 1 FROM kernel_classes WHERE category = 'communication' LIMIT 1")
    frame = recording.frame(
        f"""WITH RECURSIVE comm AS (
              SELECT g.gpu_op_id, g.start_ns, g.dur_ns, g.cpu_op_id, s.step, g.name AS kernel,
                g.grid_x * g.grid_y * g.grid_z AS blocks, c.start_ns AS launch_ns, c.thread_id
              FROM named_gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) LEFT JOIN runtime_calls c USING (call_id)
              WHERE g.device = ? AND {"s.category = 'communication'" if has_communication else "false"}),
            up AS (
              SELECT DISTINCT gpu_op_id, cpu_op_id, 0 AS level FROM comm WHERE cpu_op_id IS NOT NULL
                AND EXISTS (SELECT 1 FROM collectives WHERE cpu_op_id IS NOT NULL)
              UNION ALL
              SELECT up.gpu_op_id, o.parent_id, level + 1 FROM up JOIN cpu_ops o ON o.cpu_op_id = up.cpu_op_id
              WHERE o.parent_id IS NOT NULL AND level < {MAX_LEVELS_ABOVE_LAUNCH}),
            described AS (
              SELECT gpu_op_id, -1 AS level, {_ARGUMENTS} FROM collectives WHERE gpu_op_id IS NOT NULL
              UNION ALL
              SELECT up.gpu_op_id, level, {_ARGUMENTS} FROM up JOIN collectives c ON c.cpu_op_id = up.cpu_op_id AND c.gpu_op_id IS NULL),
            one AS (SELECT gpu_op_id, {", ".join(f"arg_min({c}, level) AS {c}" for c in _ARGUMENTS.split(", "))} FROM described GROUP BY gpu_op_id)
        SELECT comm.*, one.* EXCLUDE (gpu_op_id) FROM comm LEFT JOIN one USING (gpu_op_id) ORDER BY start_ns, gpu_op_id""",
        [device],
    )
    frame["forward"], frame["after_backward"] = _around_backward(recording, device, frame)
    exposed = _exposed(recording, device)
    ends = frame["start_ns"].to_numpy(np.int64) + frame["dur_ns"].to_numpy(np.int64)
    starts, stops, op, _ = overlaps(Intervals(frame["start_ns"].to_numpy(np.int64), ends), exposed)
    exposed_ns = np.zeros(len(frame), np.int64)
    np.add.at(exposed_ns, op, stops - starts)
    frame["exposed_ns"] = exposed_ns
    label = dict(zip(steps["step"], step_labels(steps), strict=True))
    counted = set(steps.loc[steps["counted"].astype(bool), "step"])
    numbers = [None if pd.isna(s) else int(s) for s in frame["step"]]
    frame["step"] = pd.Series([label.get(s) if len(steps) else "" for s in numbers], dtype=object)
    frame["counted"] = np.array([s in counted for s in numbers], dtype=bool)
    frame["bytes"] = pd.array([_bytes(row) for row in frame.to_dict("records")], dtype="Int64")
    frame["has_arguments"] = frame["name"].notna()
    lower_names = frame["name"].fillna("").astype(str)
    frame["name"] = [_kind(n if isinstance(n, str) else k) for n, k in zip(frame["name"], frame["kernel"], strict=True)]
    ranks = frame["group_ranks"].fillna("").astype(str)
    frame["group"] = frame["group_name"].fillna("").astype(str) + ranks.where(ranks == "", " " + ranks)
    frame["description"] = frame["group_description"]
    frame["sends"] = lower_names.str.contains("send").astype("int64")
    frame["receives"] = lower_names.str.contains("recv").astype("int64")
    exchanges = frame["name"].isin(("alltoall", SEND_RECEIVE))
    served = [kind for kind, names in PURPOSE_PATTERNS.items() if exchanges.any() and recording.named(names)]
    frame["serves"] = pd.Series(served[0] if len(served) == 1 else None, frame.index, dtype=object).where(exchanges, None)
    frame["chunks"], frame["microbatches"] = _named_passes(recording) if exchanges.any() else (None, None)
    frame["peer"] = pd.array([pd.NA] * len(frame), dtype="Int64")
    _point_to_point(recording, frame)
    return frame.drop(columns=["cpu_op_id", "group_name", "group_ranks", "group_description", "thread_id"]), exposed


def _around_backward(recording: Recording, device: int, kernels: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Return which kernels were launched before their step's first backward operator, or after the last.

    A value is None if the step has no backward operator.
    """
    if kernels.empty:  # The search for backward passes takes 0.25 s with five million events.
        return pd.Series(dtype=object), pd.Series(dtype=object)
    passes = recording.frame(
        "SELECT s.step, min(o.start_ns) AS start_ns, max(o.start_ns + o.dur_ns) AS end_ns FROM steps s "
        "JOIN cpu_ops o ON o.start_ns >= s.host_start_ns AND o.start_ns < s.host_end_ns "
        f"WHERE s.device = ? AND o.name_id IN (SELECT name_id FROM names WHERE starts_with(name, '{BACKWARD_PREFIX}')) GROUP BY s.step",
        [device],
    )
    # A kernel outside the steps has no step number, so the merge needs a nullable integer column.
    of_step = (
        kernels[["step"]]
        .astype("Int64")
        .merge(passes.astype({"step": "Int64"}), on="step", how="left")
        .set_index(kernels.index)
    )
    has_times = of_step["start_ns"].notna() & kernels["launch_ns"].notna()
    early, late = kernels["launch_ns"] < of_step["start_ns"], kernels["launch_ns"] > of_step["end_ns"]
    return early.astype(object).where(has_times, None), late.astype(object).where(has_times, None)


def _point_to_point(recording: Recording, kernels: pd.DataFrame) -> None:
    """Set sends, receives, bytes and peer of point-to-point kernels from the calls before their launch.

    A batch of sends and receives is one kernel, launched after all its calls.
    """
    bare = kernels[(kernels["name"] == SEND_RECEIVE) & ~kernels["has_arguments"] & kernels["launch_ns"].notna()]
    if bare.empty:
        return
    calls = recording.frame(
        "SELECT c.*, o.start_ns, o.thread_id FROM collectives c JOIN cpu_ops o USING (cpu_op_id) WHERE c.name IN ('send', 'recv') ORDER BY o.start_ns"
    )
    calls["bytes"] = [_bytes(row) for row in calls.to_dict("records")]
    if "peer_rank" not in calls:
        calls["peer_rank"] = None
    for thread, calls_of_thread in bare.sort_values("launch_ns").groupby("thread_id"):
        of_thread = calls[calls["thread_id"] == thread]
        kernel = np.searchsorted(calls_of_thread["launch_ns"].to_numpy(np.int64), of_thread["start_ns"].to_numpy(np.int64))
        for at, batch in of_thread.groupby(kernel):
            if at == len(calls_of_thread):
                continue
            row = calls_of_thread.index[int(at)]
            sent = batch["name"] == "send"
            kernels.loc[row, ["sends", "receives"]] = [int(sent.sum()), int((~sent).sum())]
            batch_bytes = batch.groupby(sent)["bytes"].sum(min_count=1)
            kernels.loc[row, "bytes"] = int(batch_bytes.max()) if batch_bytes.notna().any() else pd.NA
            peer = batch["peer_rank"].dropna().unique()
            kernels.loc[row, "peer"] = int(peer[0]) if len(peer) == 1 else pd.NA


def _named_passes(recording: Recording) -> tuple[int | None, int | None]:
    """Return the numbers of chunks and microbatches by the names of pipeline passes; None without names."""
    names = recording.frame(
        "SELECT DISTINCT regexp_extract(name, $1, 1) AS chunk, regexp_extract(name, $1, 2) AS microbatch FROM names "
        "WHERE regexp_matches(name, $1)",
        [FORWARD_PASS],
    )
    return (names["chunk"].nunique(), names["microbatch"].nunique()) if len(names) else (None, None)


def step_labels(steps: pd.DataFrame) -> pd.Series:
    """Return labels that identify the same step on all ranks: names, or positions if names repeat."""
    if steps["name"].is_unique:
        return steps["name"]
    return steps["step"].map(lambda step: f"{step} of {len(steps)}")


def _exposed(recording: Recording, device: int) -> Intervals:
    def intervals(sql: str) -> Intervals:
        rows = recording.frame(sql, [device])
        return union(rows["start_ns"], rows["end_ns"]) if len(rows) else EMPTY

    return intersect(
        intervals("SELECT start_ns, end_ns FROM segments WHERE device = ? AND owner = 'exposed_comm'"),
        intervals("SELECT start_ns, end_ns FROM windows WHERE device = ?"),
    )


def _kind(name: str) -> str:
    """Return one name for all spellings of a collective.

    For example, it is "allgather" for ``_allgather_base``, ``all_gather`` and ``ncclDevKernel_AllGather_RING_LL``.
    """
    if POINT_TO_POINT.search(name.removeprefix("nccl:")):
        return SEND_RECEIVE
    flat = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((kind for alias, kind in _ALIASES.items() if alias in flat), name)


def _bytes(row: dict[str, Any]) -> int | None:
    """Return the size from which bandwidths are computed, in bytes.

    It is the larger of input and output, because a gather has a small input and a scatter a small output.
    """
    item_bytes = DTYPE_BYTES.get(str(row["dtype"]).lower()) if isinstance(row["dtype"], str) else None
    counts = [int(n) for n in (row["in_elements"], row["out_elements"]) if pd.notna(n)]
    return item_bytes * max(counts) if item_bytes and counts else None


def exposed_causes(rows: pd.DataFrame, exposed: Intervals) -> dict[str, Intervals]:
    """Split one rank's exposed communication by cause: comm_wait, comm_transfer, unattributed.

    The parts are disjoint and cover all exposed communication. While several collectives run at once, the time is transfer if
    at least one of them transfers.
    """
    start = rows["start_ns"].to_numpy(np.int64)
    end = start + rows["dur_ns"].to_numpy(np.int64)
    transfer_start = end - rows["shortest_ns"].to_numpy(np.int64)
    transfer, explained = union(transfer_start, end), union(start, end)
    parts = {
        "comm_wait": intersect(difference(explained, transfer), exposed),
        "comm_transfer": intersect(transfer, exposed),
        "unattributed": difference(exposed, explained),
    }
    return {cause: part for cause, part in parts.items() if part.total}
