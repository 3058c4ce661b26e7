"""One recording's events as numpy columns, indexed by id.

Ids in a recording are dense and ordered by start, so ``events.gpu.start[gpu_op_id]`` is the start of that operation.
Times are int64 nanoseconds **relative to** ``Events.origin_ns`` (the recording's first time), which keeps them small;
add the origin for absolute time. A missing foreign key is -1 inside these arrays only.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]

GPU_KINDS = ("kernel", "memcpy", "memset")


@dataclass(frozen=True)
class GpuOps:
    """Columns of ``gpu_ops``; ``kind`` indexes GPU_KINDS; ``bytes`` and ``graph`` are -1 where not recorded."""

    kind: NDArray[np.int8]
    name: I32
    device: I32
    stream: I64
    start: I64
    end: I64
    call: I64
    cpu_op: I64
    bytes: I64
    graph: I64

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Calls:
    """Columns of ``runtime_calls``."""

    name: I32
    thread: I32
    start: I64
    end: I64
    correlation: I64
    cpu_op: I64
    gpu_ops: I32

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class CpuOps:
    """Columns of ``cpu_ops``."""

    annotation: NDArray[np.bool_]
    name: I32
    thread: I32
    start: I64
    end: I64
    parent: I64
    sequence: I64
    forward_thread: I64
    signature: I32

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Events:
    """Everything steps, ledger, idle and replay need of one trace. ``names[i]`` is the text of name id i."""

    origin_ns: int
    names: list[str]
    gpu: GpuOps
    calls: Calls
    ops: CpuOps


def _columns(con: duckdb.DuckDBPyConnection, table: str, key: str, columns: str) -> dict[str, np.ndarray]:
    """Read the columns in the order of ``key``, in which ingest writes them: to sort them again would take as much memory as they do."""
    ordered = con.execute(f"SELECT bool_and({key} = rowid) FROM {table}").fetchall()[0][0]
    sql = f"SELECT {columns} FROM {table}{'' if ordered else f' ORDER BY {key}'}"
    return {k: np.asarray(v) for k, v in con.execute(sql).fetchnumpy().items()}


def load_events(con: duckdb.DuckDBPyConnection) -> Events:
    """Read the events of the recording ``con`` uses (``USE <alias>`` done by the caller)."""
    row = con.execute("SELECT coalesce(first_ns, 0) FROM recording").fetchone()
    origin = int(row[0]) if row else 0
    names = [str(r[0]) for r in con.execute("SELECT name FROM names ORDER BY name_id").fetchall()]
    gpu = _columns(
        con,
        "gpu_ops",
        "gpu_op_id",
        f"""CASE kind WHEN 'kernel' THEN 0 WHEN 'memcpy' THEN 1 ELSE 2 END::TINYINT AS kind, name_id AS name, device, stream,
            start_ns - {origin} AS start, start_ns + dur_ns - {origin} AS end_, coalesce(call_id, -1) AS call,
            coalesce(cpu_op_id, -1) AS cpu_op, coalesce(bytes, -1) AS bytes, coalesce(graph_id, -1) AS graph""",
    )
    calls = _columns(
        con,
        "runtime_calls",
        "call_id",
        f"""name_id AS name, thread_id AS thread, start_ns - {origin} AS start, start_ns + dur_ns - {origin} AS end_,
            coalesce(correlation, -1) AS correlation, coalesce(cpu_op_id, -1) AS cpu_op, gpu_ops""",
    )
    ops = _columns(
        con,
        "cpu_ops",
        "cpu_op_id",
        f"""kind = 'annotation' AS annotation, name_id AS name, thread_id AS thread, start_ns - {origin} AS start,
            start_ns + dur_ns - {origin} AS end_, coalesce(parent_id, -1) AS parent, coalesce(sequence_number, -1) AS sequence,
            coalesce(forward_thread, -1) AS forward_thread, coalesce(signature_id, -1) AS signature""",
    )
    return Events(
        origin,
        names,
        GpuOps(
            kind=gpu["kind"],
            name=gpu["name"],
            device=gpu["device"],
            stream=gpu["stream"],
            start=gpu["start"],
            end=gpu["end_"],
            call=gpu["call"],
            cpu_op=gpu["cpu_op"],
            bytes=gpu["bytes"],
            graph=gpu["graph"],
        ),
        Calls(
            name=calls["name"],
            thread=calls["thread"],
            start=calls["start"],
            end=calls["end_"],
            correlation=calls["correlation"],
            cpu_op=calls["cpu_op"],
            gpu_ops=calls["gpu_ops"],
        ),
        CpuOps(
            annotation=ops["annotation"],
            name=ops["name"],
            thread=ops["thread"],
            start=ops["start"],
            end=ops["end_"],
            parent=ops["parent"],
            sequence=ops["sequence"],
            forward_thread=ops["forward_thread"],
            signature=ops["signature"],
        ),
    )
