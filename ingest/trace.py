"""Turn the columns of one trace into the tables of a recording: clock, ids, links, metadata, diagnostics."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ingest.blocks import EXAMPLE_BYTES
from ingest.columns import GPU_KINDS, Trace
from ingest.decode import I64, NULL, integers
from ingest.errors import SourceError
from ingest.link import by_external_id, enclosing, launches, nest, order_of
from ingest.repair import REPAIRS
from ingest.store import Writer

UNIX_NS = 10**14 * 1000  # times beyond 1e14 microseconds (1973) are Unix time: no uptime lasts 3 years in microseconds
MICROSECOND = 1000

SENTENCES = {
    "time_missing": ("data_loss", "Events without a readable ts or dur were left out."),
    "duration_negative": ("data_loss", "Events with a negative duration were left out."),
    "duration_absurd": (
        "data_loss",
        "Events that claim to last more than 7 days were left out; CUPTI writes these when a record was never closed.",
    ),
    "event_unreadable": ("data_loss", "Events that are no valid JSON, even after repair, were left out."),
    "name_missing": ("info", "Events without a name are called (unnamed)."),
    "name_cut": ("info", "Very long names were cut."),
    "event_deep": ("data_loss", "Events nested beyond all bounds were left out."),
    "event_cut": ("data_loss", "The last event was cut off and left out."),
    "metadata_repaired": ("info", "The part before the events was no valid JSON and was repaired."),
    "tail": ("info", "Text after the end of the trace was ignored."),
    "tail_long": ("info", "Very much text follows the events; it was ignored."),
    "second_events": ("data_loss", "A second traceEvents list was ignored."),
    "duplicate": ("data_loss", "GPU operations recorded twice (same stream, times, name and correlation) were kept once."),
    "gzip_truncated": ("data_loss", "The gzip file ends too early: the copy or the job was cut off. What came before is here."),
    "gzip_damaged": ("data_loss", "The gzip data is damaged in the middle. What came before is here."),
    "gzip_crc": ("data_loss", "The gzip checksum does not match: the data may be damaged."),
    "gzip_tail": ("info", "Bytes after the end of the gzip data were ignored."),
    "truncated": (
        "data_loss",
        "The trace ends before its closing bracket: the job was stopped while writing it. What it held is here.",
    ),
}
SENTENCES |= {f"mended_{kind}": ("info", sentence) for kind, sentence in REPAIRS.items()}
FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_modules", "with_flops")
TAKEN = {"deviceProperties", "baseTimeNanoseconds", "trace_id", "host_name", "schemaVersion", "displayTimeUnit", *FLAGS}
HOST_TABLES = ("ops", "calls", "python", "overheads")


def store(trace: Trace, writer: Writer, about: dict[str, Any], damage: list[str]) -> dict[str, Any]:
    """Write every table of ``trace``; return the recording row. Raises SourceError when nothing in it can be used."""
    document = trace.document
    rows = {key: table.rows for key, table in trace.tables.items()}
    if not sum(rows.values()):
        kinds = ", ".join(f"{key} ({count})" for key, count in trace.other.most_common(4)) or "none"
        raise SourceError("E-NOEV", f"No event of a kind that torch.profiler writes was found; there are: {kinds}.")
    columns = {key: {name: table.column(name) for name in table.names()} for key, table in trace.tables.items()}
    base = int(integers([document.metadata.get("baseTimeNanoseconds", NULL)])[0])
    clock = _shift(columns, base)
    kept = _kept(columns["gpu"])
    if duplicates := int((~kept).sum()):
        document.note("duplicate", "", duplicates)
    tolerance = MICROSECOND if all(_whole(c) for c in columns.values()) else 0
    first, last = _span(columns)
    facts = _facts(trace, columns)
    _write_events(trace, columns, kept, writer, tolerance)
    _write_names(trace, writer)
    _write_devices(document.metadata.get("deviceProperties"), writer)
    for key in damage:
        document.note(key, "")
    truncated = document.truncated or "gzip_truncated" in damage or "gzip_damaged" in damage
    if truncated:
        document.note("truncated", "")
    _write_diagnostics(trace, writer)
    return {
        **about,
        **facts,
        "kind": "trace",
        "event_count": sum(len(next(iter(c.values()))) for key, c in columns.items() if c and key != "collectives")
        - duplicates,
        "clock": clock,
        "base_time_ns": None if base == NULL else base,
        "first_ns": first,
        "last_ns": last,
        "truncated": truncated,
    }


def _shift(columns: dict[str, dict[str, NDArray[Any]]], base: int) -> str:
    """Add the trace's base to every time, in place; return the clock."""
    largest = 0
    for table in columns.values():
        for key in ("start", "time"):
            if key in table:
                largest = max(largest, int(table[key].max()))
                if base != NULL:
                    table[key] += base
    return "unix" if base not in (NULL, 0) or largest > UNIX_NS else "unknown"


def _whole(table: dict[str, NDArray[Any]]) -> bool:
    return "dur" not in table or not (table["dur"] % MICROSECOND).any()


def _span(columns: dict[str, dict[str, NDArray[Any]]]) -> tuple[int | None, int | None]:
    tables = [t for t in columns.values() if t]
    starts = [int(t[key].min()) for t in tables for key in ("start", "time") if key in t]
    ends = [int((t["start"] + t["dur"]).max()) for t in tables if "dur" in t] + [
        int(t["time"].max()) for t in tables if "time" in t
    ]
    return (min(starts), max(ends)) if starts else (None, None)


def _kept(gpu: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Tell which operations to keep: not those that two profilers recorded, equal in stream, times, name and correlation."""
    if not gpu:
        return np.ones(0, bool)
    keys = [gpu[k] for k in ("correlation", "name_id", "dur", "start", "stream", "device", "kind")]
    order = np.lexsort(keys)
    same = (gpu["correlation"][order[1:]] != NULL) & (gpu["dur"][order[1:]] > 0)
    for key in keys:
        same &= key[order[1:]] == key[order[:-1]]
    kept = np.ones(len(order), bool)
    kept[order[1:][same]] = False
    return kept


def _write_events(
    trace: Trace, columns: dict[str, dict[str, NDArray[Any]]], kept: NDArray[np.bool_], writer: Writer, tolerance: int
) -> None:
    ops, calls, python = (_sorted(columns[key]) for key in ("ops", "calls", "python"))
    gpu = _sorted(columns["gpu"], kept)
    none32, none64 = np.empty(0, np.int32), np.empty(0, np.int64)
    op_thread, op_start, op_dur = ops.get("thread_id", none32), ops.get("start", none64), ops.get("dur", none64)
    parent, depth = nest(op_thread, op_start, op_dur, tolerance)
    call_op = enclosing(
        op_thread,
        op_start,
        op_dur,
        parent,
        calls.get("thread_id", none32),
        calls.get("start", none64),
        calls.get("dur", none64),
        tolerance,
    )
    call = launches(
        calls.get("correlation", none64), calls.get("start", none64), gpu.get("correlation", none64), gpu.get("start", none64)
    )
    if ops:
        _write_ops(trace, ops, parent, depth, writer)
    if calls:
        writer.insert(
            "runtime_calls",
            {
                "call_id": np.arange(len(call_op)),
                **_plain(calls, "name_id", "thread_id"),
                "start_ns": calls["start"],
                "dur_ns": calls["dur"],
                "correlation": calls["correlation"],
                "cpu_op_id": _missing(call_op),
                "gpu_ops": np.bincount(call[call >= 0], minlength=len(call_op)).astype(np.int64),
            },
        )
    if gpu:
        gpu_op = np.where(call >= 0, call_op[call] if len(call_op) else -1, -1)
        fallback = by_external_id(ops.get("external_id", none64), gpu["external_id"])
        gpu_op = np.where(gpu_op >= 0, gpu_op, fallback)
        _write_gpu(gpu, call, gpu_op, writer)
    if python:
        caller, _ = nest(python["thread_id"], python["start"], python["dur"], tolerance)
        writer.insert(
            "python_calls",
            {
                "python_call_id": np.arange(len(caller)),
                **_plain(python, "name_id", "thread_id"),
                "start_ns": python["start"],
                "dur_ns": python["dur"],
                "parent_id": _missing(caller),
                "module_id": python["module_id"],
            },
        )
    _write_small(columns, ops, gpu, writer)


def _sorted(table: dict[str, NDArray[Any]], kept: NDArray[np.bool_] | None = None) -> dict[str, NDArray[Any]]:
    """Return ``table`` in the order of ids; ``row`` says where each row stood."""
    if not table:
        return {}
    rows = np.arange(len(table["start"])) if kept is None else np.flatnonzero(kept)
    rows = rows[order_of(table["start"][rows], table["dur"][rows])]
    return {**{name: values[rows] for name, values in table.items()}, "row": rows}


def _plain(table: dict[str, NDArray[Any]], *names: str) -> dict[str, NDArray[Any]]:
    return {name: table[name] for name in names}


def _missing(values: I64) -> I64:
    return np.where(values < 0, NULL, values)


def _write_ops(trace: Trace, ops: dict[str, NDArray[Any]], parent: I64, depth: NDArray[np.int32], writer: Writer) -> None:
    extras = np.array([*(m[0] for m in trace.extras.meanings), None], object)
    writer.insert(
        "cpu_ops",
        {
            "cpu_op_id": np.arange(len(parent)),
            "kind": np.where(ops["annotation"], "annotation", "op").astype(object),
            **_plain(ops, "name_id", "thread_id"),
            "start_ns": ops["start"],
            "dur_ns": ops["dur"],
            "parent_id": _missing(parent),
            "depth": depth,
            **_plain(ops, "external_id", "sequence_number", "forward_thread", "signature_id"),
            "extra": extras[ops["extra"]],
        },
    )


def _write_gpu(gpu: dict[str, NDArray[Any]], call: I64, gpu_op: I64, writer: Writer) -> None:
    grid = [f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz"]
    writer.insert(
        "gpu_ops",
        {
            "gpu_op_id": np.arange(len(call)),
            "kind": np.array(GPU_KINDS, object)[gpu["kind"]],
            **_plain(gpu, "name_id", "device", "stream"),
            "start_ns": gpu["start"],
            "dur_ns": gpu["dur"],
            "correlation": gpu["correlation"],
            "call_id": _missing(call),
            "cpu_op_id": _missing(gpu_op),
            **_plain(gpu, "external_id", *grid, "registers_per_thread", "shared_memory_bytes", "blocks_per_sm", "warps_per_sm"),
            **_plain(gpu, "occupancy_pct", "bytes", "graph_id", "graph_node_id"),
        },
    )


def _write_small(
    columns: dict[str, dict[str, NDArray[Any]]], ops: dict[str, NDArray[Any]], gpu: dict[str, NDArray[Any]], writer: Writer
) -> None:
    for table in ("gpu_annotations", "overheads", "syncs"):
        if columns[table]:
            rows = _sorted(columns[table])
            writer.insert(table, {{"start": "start_ns", "dur": "dur_ns"}.get(n, n): v for n, v in rows.items() if n != "row"})
    if memory := columns["memory"]:
        order = np.argsort(memory["time"], kind="stable")
        names = {"time": "time_ns", "allocated": "total_allocated_bytes", "reserved": "total_reserved_bytes"}
        writer.insert("allocations", {names.get(n, n): v[order] for n, v in memory.items()})
    if collectives := columns["collectives"]:
        found = dict(collectives)
        on_gpu, row = found.pop("gpu"), found.pop("row")
        for name, side, rows in (("gpu_op_id", on_gpu, gpu), ("cpu_op_id", ~on_gpu, ops)):
            ids = np.full(len(row), NULL)
            if rows and side.any():
                place = np.full(max(int(rows["row"].max()), int(row[side].max())) + 1, NULL)
                place[rows["row"]] = np.arange(len(rows["row"]))
                ids[side] = place[row[side]]
            found[name] = ids
        known = (found["gpu_op_id"] != NULL) | (found["cpu_op_id"] != NULL)  # not those of dropped duplicates
        writer.insert("collectives", {name: values[known] for name, values in found.items()})


def _write_names(trace: Trace, writer: Writer) -> None:
    writer.insert("names", {"name_id": np.arange(len(trace.names)), "name": list(trace.names)})
    keys = [(pid.decode(errors="replace"), tid.decode(errors="replace")) for pid, tid in trace.threads]
    writer.insert(
        "threads",
        {
            "thread_id": np.arange(len(keys)),
            "pid": [pid for pid, _ in keys],
            "tid": [tid for _, tid in keys],
            "name": np.array([trace.thread_names.get(key) for key in keys], object),
            "process_name": np.array([trace.process_names.get(pid) for pid, _ in keys], object),
        },
    )
    meanings = list(trace.signatures.meanings)
    writer.insert(
        "signatures",
        {
            "signature_id": np.arange(len(meanings)),
            **{
                key: np.array([m[i] for m in meanings], object)
                for i, key in enumerate(("input_dims", "input_types", "input_strides", "concrete_inputs"))
            },
        },
    )


DEVICE_FIELDS = {
    "memory_bytes": ("totalGlobalMem",),
    "compute_major": ("computeMajor",),
    "compute_minor": ("computeMinor",),
    "sms": ("numSms", "maxComputeUnits"),
    "warp_size": ("warpSize",),
    "max_threads_per_sm": ("maxThreadsPerMultiprocessor",),
    "registers_per_sm": ("regsPerMultiprocessor",),
    "shared_memory_per_sm_bytes": ("sharedMemPerMultiprocessor", "maxSharedMemoryPerMultiProcessor"),
}


def _write_devices(found: Any, writer: Writer) -> None:
    for i, device in enumerate(found if isinstance(found, list) else []):
        if not isinstance(device, dict):
            continue
        row: dict[str, Any] = {
            "device": _integer(device.get("id")),
            "name": str(device["name"]) if device.get("name") else None,
        }
        row["device"] = i if row["device"] is None else row["device"]
        for column, keys in DEVICE_FIELDS.items():
            row[column] = next((v for key in keys if (v := _integer(device.get(key))) is not None), None)
        writer.insert_row("devices", row)


def _integer(value: Any) -> int | None:
    number = int(integers([value])[0])
    return None if number == NULL else number


def _text(value: Any) -> str | None:
    return None if value is None else value if isinstance(value, str) else str(value)


def _facts(trace: Trace, columns: dict[str, dict[str, NDArray[Any]]]) -> dict[str, Any]:
    found = trace.document.metadata
    job = found.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    flags: dict[str, bool | None] = {}
    for key in FLAGS:
        flags[key] = bool(found[key]) if key in found else (False if "schemaVersion" in found else None)
    seen = {
        "record_shapes": bool(trace.signatures),
        "with_stack": trace.tables["python"].rows > 0,
        "profile_memory": trace.tables["memory"].rows > 0,
    }
    for key, value in seen.items():
        if value:
            flags[key] = True
    return {
        "vendor": _vendor(trace),
        "host": _text(found.get("host_name")),
        "rank": _integer(job.get("rank")),
        "world_size": _integer(job.get("world_size")),
        "backend": _text(job.get("backend")),
        "nccl_version": _text(job.get("nccl_version")),
        "trace_id": _text(found.get("trace_id")),
        "torch_version": _text(found.get("torch_version") or found.get("pytorch_version")),
        "runtime_version": _text(found.get("cuda_runtime_version", found.get("hip_runtime_version"))),
        "driver_version": _text(found.get("cuda_driver_version", found.get("hip_driver_version"))),
        "profiler_version": _text(found.get("cupti_version", found.get("roctracer_version"))),
        **flags,
        "metadata": msgspec.json.encode({k: v for k, v in found.items() if k not in TAKEN}).decode(),
    }


def _vendor(trace: Trace) -> str | None:
    found = trace.document.metadata
    devices = found.get("deviceProperties")
    names = (
        " ".join(str(d.get("name", "")) for d in devices if isinstance(d, dict)).lower() if isinstance(devices, list) else ""
    )
    called = " ".join(list(trace.names)[:5000])
    signs = (
        (
            "amd",
            "roctracer_version" in found
            or "hip_runtime_version" in found
            or re.search(r"amd|radeon|instinct|mi\d{3}", names)
            or " hip" in f" {called}",
        ),
        (
            "nvidia",
            "cupti_version" in found or "cuda_runtime_version" in found or re.search(r"nvidia|tesla|geforce|quadro|rtx", names),
        ),
        ("intel", re.search(r"intel|xpu", names)),
        ("meta", re.search(r"artemis|mtia", names)),
        ("huawei", "ascend" in names),
        ("nvidia", " cuda" in f" {called}"),
    )
    return next((vendor for vendor, sign in signs if sign), None)


def _write_diagnostics(trace: Trace, writer: Writer) -> None:
    document = trace.document
    for key, count in sorted(document.notes.items()):
        severity, sentence = SENTENCES[key]
        row = {
            "key": key,
            "severity": severity,
            "sentence": sentence,
            "count": count,
            "example": document.examples.get(key, "")[:EXAMPLE_BYTES] or None,
        }
        writer.insert_row("diagnostics", row)
    for key, count in sorted(trace.other.items()):
        what = f"Events with ph {key[3:]}" if key.startswith("ph ") else f"Events of category {key!r}"
        sentence = f"{what} are not stored: Sawtooth measures nothing with them."
        writer.insert_row(
            "diagnostics",
            {"key": f"not_stored_{key.replace(' ', '_')[:60]}", "severity": "info", "sentence": sentence, "count": count},
        )
