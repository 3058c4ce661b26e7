"""Rows of the derived file, stored as soon as their inputs are known.

``con`` has the derived file attached as ``d``.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd

from sawtooth.analysis.derive.classes import AllClasses
from sawtooth.analysis.derive.columns import categorical, nullable
from sawtooth.analysis.derive.lost import ledger
from sawtooth.analysis.derive.lost.losses import Losses
from sawtooth.analysis.derive.parts.part import DerivedPart
from sawtooth.analysis.derive.parts.work import ClassifiedWork
from sawtooth.analysis.derive.steps.device import STATUS_NAMES
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay import store as replay_store
from sawtooth.ingest.database import append

# The profiler rounds its occupancy estimate to whole percent, and writes 0 if it cannot estimate (kernels with much shared memory).
# An SM holds 48 to 64 warps, so one warp is at least 1.6 %. If an SM has at least one warp, an occupancy of 0 is not an estimate.
WARPS_SEEN = 1

_KERNELS = f"""
INSERT INTO d.kernels
WITH clipped AS (
    SELECT g.*, s.category, s.tensor_cores, g.start_ns >= w.start_ns AND g.start_ns < w.end_ns AS inside,
        least(g.start_ns + g.dur_ns, w.end_ns) - greatest(g.start_ns, w.start_ns) AS part_ns
    FROM gpu_ops g JOIN windows w ON g.device = w.device AND g.start_ns < w.end_ns AND g.start_ns + g.dur_ns > w.start_ns
    JOIN gpu_op_steps s USING (gpu_op_id))
SELECT device, name_id, kind, category, tensor_cores, count(*) FILTER (inside), sum(part_ns), min(dur_ns), median(dur_ns), max(dur_ns),
    sum(blocks_per_sm * dur_ns) / nullif(sum(dur_ns) FILTER (blocks_per_sm IS NOT NULL), 0),
    sum(occupancy_pct * dur_ns) / nullif(sum(dur_ns) FILTER (occupancy_pct IS NOT NULL), 0), sum(least(blocks_per_sm, 1) * part_ns), sum(bytes),
    sum(part_ns) FILTER (occupancy_pct = 0 AND warps_per_sm >= {WARPS_SEEN})::BIGINT
FROM clipped GROUP BY ALL"""


def store_frame(con: duckdb.DuckDBPyConnection, table: str, frame: pd.DataFrame) -> None:
    """Append the rows of a frame; columns are matched by name."""
    if len(frame):
        append(con, f"d.{table}", frame)


def store_classes(con: duckdb.DuckDBPyConnection, classes: AllClasses) -> None:
    """Fill ``kernel_classes`` and ``owner_exceptions``."""
    names = {"name": "name_id", "operator_name": "cpu_op_name_id", "signature": "signature_id"}
    table = classes.table().rename(columns=names)
    store_frame(con, "kernel_classes", table.astype({"cpu_op_name_id": "Int64", "signature_id": "Int64"}))
    # Almost all operations of a name have the same owner. Only exceptions are listed, so that queries need not join all operations.
    ids, owners = classes.exceptions()
    store_frame(con, "owner_exceptions", pd.DataFrame({"gpu_op_id": ids, "owner": categorical(owners, OWNER_KEYS)}))


def store_kernels(con: duckdb.DuckDBPyConnection) -> None:
    """Fill ``kernels``, the sums of operations, from the rows derived so far."""
    con.execute(_KERNELS)


def store_steps(con: duckdb.DuckDBPyConnection, part: DerivedPart) -> None:
    """Fill ``steps`` and ``windows``."""
    origin = part.events.origin_ns
    for device, window in zip(part.devices, part.windows, strict=True):
        table = device.table.rename(
            columns={"start": "start_ns", "end": "end_ns", "host_start": "host_start_ns", "host_end": "host_end_ns"}
        )
        for column in ("start_ns", "end_ns", "host_start_ns", "host_end_ns"):
            table[column] = table[column].astype(np.int64) + origin
        store_frame(con, "steps", table.assign(device=device.device))
        intervals = {"device": device.device, "start_ns": window.starts + origin, "end_ns": window.ends + origin}
        store_frame(con, "windows", pd.DataFrame(intervals))


def store_operations(con: duckdb.DuckDBPyConnection, work: ClassifiedWork) -> None:
    """Append the operations that this part counts to ``gpu_op_steps``."""
    part = work.part
    op_step = np.full(len(part.events.gpu), -1, np.int64)
    status = np.full(len(part.events.gpu), 2, np.int8)
    for device in part.devices:
        op_step[device.ops], status[device.ops] = device.op_step, device.status
    frame = pd.DataFrame(
        {
            "gpu_op_id": part.recorded("gpu", np.arange(len(op_step))),
            "step": nullable(op_step),
            "status": categorical(status, STATUS_NAMES),
            "category": work.classes.column("category"),
            "tensor_cores": work.classes.column("tensor_cores"),
            "flop_op_id": nullable(part.recorded("ops", work.flops.counted_operator_of)),
        }
    )
    if work.modules is not None:
        frame["module"] = nullable(work.modules.node)
    store_frame(con, "gpu_op_steps", frame if part.own_gpu.all() else frame[part.own_gpu])


def store_segments(con: duckdb.DuckDBPyConnection, parts: dict[int, ledger.Segments], origin: int) -> None:
    """Append the owner of each moment of a part, by device, to ``segments``."""
    for device, of_device in parts.items():
        frame = pd.DataFrame({"device": device, "start_ns": of_device.starts + origin, "end_ns": of_device.ends + origin})
        store_frame(con, "segments", frame.assign(owner=categorical(of_device.owner, OWNER_KEYS)))


def store_losses(con: duckdb.DuckDBPyConnection, losses: Losses) -> None:
    """Fill ``causes`` and store the replays without the profiler."""
    store_frame(con, "causes", losses.causes())
    for kind, problem in (("unprofiled", losses.unprofiled), ("unexplained", losses.unexplained)):
        if problem is not None:
            con.execute("INSERT INTO d.replays VALUES (?, ?)", [kind, replay_store.dump(problem)])
