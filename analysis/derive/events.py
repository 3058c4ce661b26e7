"""One recording's events as numpy columns, indexed by id.

Ids in a recording are dense and ordered by start, so ``events.gpu.start[gpu_op_id]`` is the start of that operation.
Times are int64 nanoseconds **relative to** ``TraceEvents.origin_ns`` (the recording's first time), which keeps them small. Add the
origin for absolute times. Inside these arrays, a missing foreign key is -1.
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
    """Columns of ``gpu_ops``.

    ``kind`` indexes GPU_KINDS; ``bytes`` and ``graph`` are -1 where not recorded.
    """

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
class TraceEvents:
    """The events of one trace that steps, ledger, idle time and replay need.

    ``names[i]`` is the text of name id i.
    """

    origin_ns: int
    names: list[str]
    gpu: GpuOps
    calls: Calls
    ops: CpuOps


# SQL columns of each class, named after the fields above. Times are relative to an origin, which replaces {origin}.
_GPU = """CASE kind WHEN 'kernel' THEN 0 WHEN 'memcpy' THEN 1 ELSE 2 END::TINYINT AS kind, name_id AS name, device, stream,
    start_ns - {origin} AS start, start_ns + dur_ns - {origin} AS end, coalesce(call_id, -1) AS call,
    coalesce(cpu_op_id, -1) AS cpu_op, coalesce(bytes, -1) AS bytes, coalesce(graph_id, -1) AS graph"""
_CALLS = """name_id AS name, thread_id AS thread, start_ns - {origin} AS start, start_ns + dur_ns - {origin} AS end,
    coalesce(correlation, -1) AS correlation, coalesce(cpu_op_id, -1) AS cpu_op, gpu_ops"""
_OPS = """kind = 'annotation' AS annotation, name_id AS name, thread_id AS thread, start_ns - {origin} AS start,
    start_ns + dur_ns - {origin} AS end, coalesce(parent_id, -1) AS parent, coalesce(sequence_number, -1) AS sequence,
    coalesce(forward_thread, -1) AS forward_thread, coalesce(signature_id, -1) AS signature"""


def in_order(con: duckdb.DuckDBPyConnection, table: str, key: str) -> bool:
    """Return whether the rows of ``table`` are ordered by ``key``, counting from 0, as ingest writes them."""
    return bool(con.execute(f"SELECT coalesce(bool_and({key} = rowid), true) FROM {table}").fetchall()[0][0])


def columns_of(con: duckdb.DuckDBPyConnection, sql: str, values: dict[str, object] | None = None) -> dict[str, np.ndarray]:
    """Return the result columns of a query with named ``values``."""
    return {name: np.asarray(column) for name, column in con.execute(sql, values).fetchnumpy().items()}


def _rows(con: duckdb.DuckDBPyConnection, table: str, key: str, columns: str, where: str | None) -> dict[str, np.ndarray]:
    """Read the columns, ordered by ``key``.

    Rows are sorted only if they are not in order, because sorting takes as much memory as the columns. With ``where``, rows are
    never sorted, so the table must be in order already.
    """
    if where is not None:
        return columns_of(con, f"SELECT {columns} FROM {table} WHERE {where}")
    return columns_of(con, f"SELECT {columns} FROM {table}{'' if in_order(con, table, key) else f' ORDER BY {key}'}")


def read_gpu_ops(con: duckdb.DuckDBPyConnection, origin: int, where: str | None = None) -> GpuOps:
    """Read GPU operations: all, or those that ``where`` selects."""
    return GpuOps(**_rows(con, "gpu_ops", "gpu_op_id", _GPU.format(origin=origin), where))


def read_calls(con: duckdb.DuckDBPyConnection, origin: int, where: str | None = None) -> Calls:
    """Read runtime calls: all, or those that ``where`` selects."""
    return Calls(**_rows(con, "runtime_calls", "call_id", _CALLS.format(origin=origin), where))


def read_cpu_ops(con: duckdb.DuckDBPyConnection, origin: int, where: str | None = None) -> CpuOps:
    """Read operators and annotations: all, or those that ``where`` selects."""
    return CpuOps(**_rows(con, "cpu_ops", "cpu_op_id", _OPS.format(origin=origin), where))


def origin_of(con: duckdb.DuckDBPyConnection) -> int:
    """Return the time of the recording's first event."""
    row = con.execute("SELECT coalesce(first_ns, 0) FROM recording").fetchone()
    return int(row[0]) if row else 0


def names_of(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return the text of each name id."""
    return [str(r[0]) for r in con.execute("SELECT name FROM names ORDER BY name_id").fetchall()]


def load_events(con: duckdb.DuckDBPyConnection) -> TraceEvents:
    """Read the events of the recording that ``con`` uses (the caller has executed ``USE <alias>``)."""
    origin = origin_of(con)
    return TraceEvents(origin, names_of(con), read_gpu_ops(con, origin), read_calls(con, origin), read_cpu_ops(con, origin))
