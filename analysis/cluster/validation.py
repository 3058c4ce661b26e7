"""Validation of a summary's rows.

A summary may come from an untrusted source, and a Parquet file can contain any number in any column.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sawtooth.analysis.telemetry.summary import DeviceTelemetry
from sawtooth.ingest.manifest import ID_PATTERN
from sawtooth.ingest.typed import from_json

KINDS = ("trace", "telemetry", "refused")
MAX_TIME_NS = 1 << 62  # Largest time, 146 years. The sum of two such times still fits into 64 bits.
LONG_MS = 1e12  # Longest step, or time lost in a step: 30 years.
MAX_RANKS = 1 << 20  # Of a job. The largest known jobs have about 100,000.
MAX_ELEMENTS = 1 << 50  # A collective's buffer has at most this many elements.
MAX_TEXT_BYTES = 1 << 16  # Bytes. The name of a kernel from a template has several thousand.
# Columns with a value in every row of a trace's device, and fields with a value in every list entry.
OF_TRACE = ("id", "source", "pids", "step", "lost", "held_ms", "quiet", "beside", "call")
OF_ENTRY = {
    "step": ("label", "counted", "start_ns", "end_ns"),
    "lost": ("cause", "ms"),
    "quiet": ("kernel", "ns", "calls"),
    "call": ("name", "group", "described", "step", "start_ns", "dur_ns", "exposed_ns", "exposed_from_ns"),
}
# The smallest and largest valid value of each column.
RANGES: dict[str, tuple[float, float]] = {
    "rank": (0, MAX_RANKS), "world": (1, MAX_RANKS), "device": (0, 1 << 16), "first_ns": (-MAX_TIME_NS, MAX_TIME_NS), "bytes": (0, MAX_TIME_NS),
    "step_ms": (0, LONG_MS), "run_ms": (0, LONG_MS), "work_ms": (0, LONG_MS), "held_ms": (0, LONG_MS), "step.start_ns": (-MAX_TIME_NS, MAX_TIME_NS), "step.end_ns": (-MAX_TIME_NS, MAX_TIME_NS), "lost.ms": (0, LONG_MS),
    "quiet.ns": (0, MAX_TIME_NS), "quiet.calls": (0, 1 << 31), "call.start_ns": (-MAX_TIME_NS, MAX_TIME_NS), "call.dur_ns": (0, MAX_TIME_NS), "call.group_size": (0, MAX_RANKS),
    "call.peer": (0, MAX_RANKS), "call.in_elements": (0, MAX_ELEMENTS), "call.out_elements": (0, MAX_ELEMENTS), "call.bytes": (0, MAX_TIME_NS),
    "call.sends": (0, 1 << 15),
    "call.receives": (0, 1 << 15), "call.step": (-1, 1 << 15), "call.exposed_ns": (0, MAX_TIME_NS), "call.exposed_from_ns": (0, MAX_TIME_NS),
}  # fmt: skip


def first_invalid_column(table: pa.Table) -> str | None:
    """Return the first column with an invalid value, such as ``call.dur_ns``; None if all are valid.

    ``table`` has the schema ``summary.SCHEMA``.
    """
    if not all(kind in KINDS for kind in table["kind"].to_pylist()):
        return "kind"
    traces = table.filter(pc.and_(pc.equal(table["kind"], "trace"), pc.is_valid(table["device"])))
    columns = {name: table[name].combine_chunks() for name in table.column_names}
    for name, fields in OF_ENTRY.items():
        entries = columns[name].flatten()
        columns |= {f"{name}.{field.name}": entries.field(field.name) for field in entries.type}
        missing = next((f"{name}.{field}" for field in fields if columns[f"{name}.{field}"].null_count), None)
        if missing or entries.null_count:
            return missing or name
    return (
        next((name for name in OF_TRACE if traces[name].null_count), None)
        or next((name for name in ("pids", "beside") if columns[name].flatten().null_count), None)
        or next((name for name, column in columns.items() if _too_long(column)), None)
        or next((name for name, (lowest, highest) in RANGES.items() if _outside(columns[name], lowest, highest)), None)
        or (None if all(map(ID_PATTERN.fullmatch, traces["id"].to_pylist())) else "id")
        or (None if _in_order(columns) else "step.end_ns")
        or (None if _is_inside(columns) else "call.exposed_ns")
        or (None if _in_a_step(traces) else "call.step")
        or (None if _can_be_decoded(table) else "sampled")
    )


def _too_long(column: pa.Array) -> bool:
    return pa.types.is_string(column.type) and (pc.max(pc.binary_length(column)).as_py() or 0) > MAX_TEXT_BYTES


def _outside(column: pa.Array, lowest: float, highest: float) -> bool:
    """Return whether a value is outside a range; NaN always is."""
    values = column.drop_null().to_numpy(zero_copy_only=False)
    return not bool(((values >= lowest) & (values <= highest)).all())


def _in_order(columns: dict[str, pa.Array]) -> bool:
    return bool(pc.all(pc.greater_equal(columns["step.end_ns"], columns["step.start_ns"]), min_count=0).as_py())


def _is_inside(columns: dict[str, pa.Array]) -> bool:
    exposed = pc.and_(
        pc.less_equal(columns["call.exposed_ns"], columns["call.dur_ns"]),
        pc.less_equal(columns["call.exposed_from_ns"], columns["call.dur_ns"]),
    )
    return bool(pc.all(exposed, min_count=0).as_py())


def _in_a_step(traces: pa.Table) -> bool:
    """Return whether each call's step is one of its row's steps."""
    steps = pc.list_value_length(traces["step"]).to_numpy()
    calls = traces["call"].combine_chunks()
    row = pc.list_parent_indices(calls).to_numpy()
    return bool((calls.flatten().field("step").to_numpy(zero_copy_only=False) < steps[row]).all()) if len(row) else True


def _can_be_decoded(table: pa.Table) -> bool:
    """Return whether the telemetry summary of each GPU can be decoded."""
    rows = table.filter(pc.equal(table["kind"], "telemetry"))
    if rows["pids"].null_count or rows["source"].null_count or rows["sampled"].null_count:
        return False
    try:
        for text in rows["sampled"].to_pylist():
            from_json(text, DeviceTelemetry)
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors.
        return False
    return True
