"""Communication kernels of one recording, and the same collective found on several ranks.

Ranks of a group call its collectives in the same order. So a collective is known by its group and sequence number where the trace has
one, else by its place among the group's collectives of that name, type and size in the same step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.intervals import EMPTY, Intervals, intersect, overlaps, subtract, union

if TYPE_CHECKING:
    from analysis.recordings import Recording

ENDS_APART_NS = 2_000_000  # a collective ends on all ranks at once; clocks drift far less than 2 ms while a profiler records
POINT_TO_POINT = re.compile(
    r"^i?(send|recv)|sendrecv|p2p", re.IGNORECASE
)  # pairs of a sender and a receiver: not one collective
MOSTLY = 0.5  # where most matches end apart, the matching is wrong and none of it is used
NONE_SHARED = "No collective of this run was found on two of its ranks."
MATCHED = ("collective", "shortest_ns", "wait_ns", "last", "ranks")
ROOTED = ("broadcast", "reduce")  # their root need not wait for the others, so its kernel may end long before theirs
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
              SELECT g.gpu_op_id, g.start_ns, g.dur_ns, g.cpu_op_id, s.step, n.name AS kernel
              FROM gpu_ops g JOIN gpu_op_steps s USING (gpu_op_id) JOIN names n USING (name_id)
              WHERE g.device = ? AND s.category = 'communication'),
            up AS (
              SELECT DISTINCT gpu_op_id, cpu_op_id, 0 AS level FROM comm WHERE cpu_op_id IS NOT NULL
                AND EXISTS (SELECT 1 FROM collectives WHERE cpu_op_id IS NOT NULL)
              UNION ALL
              SELECT up.gpu_op_id, o.parent_id, level + 1 FROM up JOIN cpu_ops o ON o.cpu_op_id = up.cpu_op_id
              WHERE o.parent_id IS NOT NULL AND level < {LEVELS}),
            told AS (
              SELECT gpu_op_id, -1 AS level, {_ARGUMENTS} FROM collectives WHERE gpu_op_id IS NOT NULL
              UNION ALL
              SELECT up.gpu_op_id, level, {_ARGUMENTS} FROM up JOIN collectives c ON c.cpu_op_id = up.cpu_op_id AND c.gpu_op_id IS NULL),
            one AS (SELECT gpu_op_id, {", ".join(f"arg_min({c}, level) AS {c}" for c in _ARGUMENTS.split(", "))} FROM told GROUP BY gpu_op_id)
        SELECT comm.*, one.* EXCLUDE (gpu_op_id) FROM comm LEFT JOIN one USING (gpu_op_id) ORDER BY start_ns, gpu_op_id""",
        [device],
    )
    exposed = _exposed(recording, device)
    ends = frame["start_ns"].to_numpy(np.int64) + frame["dur_ns"].to_numpy(np.int64)
    begun, ended, op, _ = overlaps(Intervals(frame["start_ns"].to_numpy(np.int64), ends), exposed)
    own = np.zeros(len(frame), np.int64)
    np.add.at(own, op, ended - begun)
    frame["exposed_ns"] = own
    unique = steps["name"].is_unique
    label = {s: (n if unique else f"{s} of {len(steps)}") for s, n in zip(steps["step"], steps["name"], strict=True)}
    counted = set(steps.loc[steps["counted"].astype(bool), "step"])
    numbers = [None if pd.isna(s) else int(s) for s in frame["step"]]
    frame["step"] = pd.Series([label.get(s) if len(steps) else "" for s in numbers], dtype=object)
    frame["counted"] = np.array([s in counted for s in numbers], dtype=bool)
    frame["bytes"] = pd.array([_bytes(row) for row in frame.to_dict("records")], dtype="Int64")
    frame["told"] = frame["name"].notna()
    frame["name"] = [_kind(n if isinstance(n, str) else k) for n, k in zip(frame["name"], frame["kernel"], strict=True)]
    ranks = frame["group_ranks"].fillna("").astype(str)
    frame["group"] = frame["group_name"].fillna("").astype(str) + ranks.where(ranks == "", " " + ranks)
    return frame.drop(columns=["cpu_op_id", "group_name", "group_ranks"]), exposed


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
        return name
    flat = re.sub(r"[^a-z0-9]", "", name.lower())
    return next((kind for alias, kind in _ALIASES.items() if alias in flat), name)


def _bytes(row: dict[str, Any]) -> int | None:
    """Return the size that bandwidths are counted by: the larger of input and output, which is the whole that a gather or scatter moves."""
    each = DTYPE_BYTES.get(str(row["dtype"]).lower()) if isinstance(row["dtype"], str) else None
    counts = [int(n) for n in (row["in_elements"], row["out_elements"]) if pd.notna(n)]
    return each * max(counts) if each and counts else None


def match(
    kernels: Sequence[pd.DataFrame], ranks: Sequence[int | None], worlds: Sequence[Any]
) -> tuple[pd.DataFrame, list[int | None], tuple[str, ...]]:
    """Find each collective on the ranks that took part in it.

    ``kernels`` are the frames of ``load``, one per rank. Returns the matched rows with collective, position (index in ``kernels``),
    shortest_ns, wait_ns, last (it came last; nobody where two are shortest) and ranks (how many were matched), the clock offset of each
    rank against the first in ns, and notes for people.
    """
    rows = pd.concat([frame.assign(position=i, rank=ranks[i]) for i, frame in enumerate(kernels)], ignore_index=True)
    known = {int(world) for world in worlds if world is not None and not pd.isna(world)}
    usable = pd.Series([not POINT_TO_POINT.search(str(name)) for name in rows["name"]], index=rows.index, dtype=bool)
    told = rows[rows["told"]]
    one_group = known == {2} or (told["group"].nunique() == 1 and set(told["group_size"].dropna()) == known and len(known) == 1)
    usable &= rows["told"] | one_group  # without arguments, only a run with one group says which ranks took part
    usable &= rows["step"].notna() | rows["sequence"].notna()
    if not usable.any():
        lacking = rows.reindex(columns=[*rows.columns, *MATCHED])[:0]
        none = [0, *([None] * (len(kernels) - 1))]
        return lacking.astype(dict.fromkeys(MATCHED, "int64") | {"last": bool}), none, (NONE_SHARED,)
    rows = _numbered(rows[usable])
    offsets = clock_offsets(rows, len(kernels))
    rows, notes = _ends_together(rows, offsets)
    duration = rows.groupby("collective")["dur_ns"]
    rows["shortest_ns"] = duration.transform("min")
    rows["wait_ns"] = rows["dur_ns"] - rows["shortest_ns"]
    shortest = rows["wait_ns"] == 0
    rows["last"] = shortest & (shortest.groupby(rows["collective"]).transform("sum") == 1)
    rows["counted"] = rows.groupby("collective")["counted"].transform("all")
    rows["ranks"] = duration.transform("size")
    if (rows["group_size"] > rows["ranks"]).fillna(False).any():
        notes += (
            "Some ranks of a group are not in this run: waiting is at least, and transfer at most, what is shown.",
        )  # an unrecorded rank may have come last
    return rows.reset_index(drop=True), offsets, notes


def _numbered(rows: pd.DataFrame) -> pd.DataFrame:
    """Give rows of one collective one number; drop those found on one rank only, or not equally often on all of theirs."""
    by_sequence = rows["sequence"].notna()
    text = {c: [str(v) for v in rows[c]] for c in ("group", "name", "sequence", "in_elements", "out_elements", "dtype", "step")}
    # Python strings: missing values stay words here, where pandas' own strings would make the whole key missing
    key = [
        f"{group}|{name}|" + (f"#{sequence}" if numbered else f"{put}/{got}/{dtype}@{step}")
        for numbered, group, name, sequence, put, got, dtype, step in zip(by_sequence, *text.values(), strict=True)
    ]
    rows = rows.assign(key=key)
    calls = rows.groupby(["key", "position"]).size()
    spread = calls.groupby("key").agg(["min", "max", "size"])
    good = spread[(spread["min"] == spread["max"]) & (spread["size"] > 1)].index
    rows = rows[rows["key"].isin(good)]
    rows = rows.assign(order=rows.groupby(["key", "position"]).cumcount())
    rows["collective"] = rows.groupby(["key", "order"], sort=True).ngroup().astype(np.int64)
    # two recordings of one rank are two times of one process, not two ranks
    twice = rows[rows["rank"].notna()].duplicated(["collective", "rank"], keep=False)
    rows = rows[~rows["collective"].isin(rows.loc[twice.index[twice], "collective"])]
    return rows.drop(columns=["key", "order"])


def clock_offsets(rows: pd.DataFrame, ranks: int) -> list[int | None]:
    """Return each rank's clock minus the first's in ns: the median difference of the ends of shared collectives, None without any."""
    ends = rows.assign(end=rows["start_ns"] + rows["dur_ns"])[~rows["name"].isin(ROOTED)]
    first = ends[ends["position"] == 0].set_index("collective")["end"]
    offsets: list[int | None] = [0]
    for position in range(1, ranks):
        mine = ends[ends["position"] == position].set_index("collective")["end"]
        shared = mine.index.intersection(first.index)
        offsets.append(int(np.median(mine[shared].to_numpy() - first[shared].to_numpy())) if len(shared) else None)
    return offsets


def _ends_together(rows: pd.DataFrame, offsets: Sequence[int | None]) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Drop collectives whose ranks end apart although their clocks are aligned: different ones were taken for one."""
    if rows.empty:
        return rows, (NONE_SHARED,)
    shift = rows["position"].map(lambda p: offsets[p] or 0).astype(np.int64)
    end = (rows["start_ns"] + rows["dur_ns"] - shift).groupby(rows["collective"])
    apart = (end.transform("max") - end.transform("min")) > ENDS_APART_NS
    unknown = rows["position"].map(lambda p: offsets[p] is None).groupby(rows["collective"]).transform("any")
    bad = apart & ~unknown.astype(bool) & ~rows["name"].isin(ROOTED)
    if bad.mean() > MOSTLY:
        return rows[:0], (
            "The ranks' collectives end at different times, so they were not matched: are these traces of one run?",
        )
    note = f"{int(bad.sum())} communication kernels end at other times than on the other ranks and were not matched."
    return rows[~bad], ((note,) if bad.any() else ())


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
