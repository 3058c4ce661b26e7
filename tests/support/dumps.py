"""Dumps of NCCL's flight recorder and snapshots of CUDA's allocator, written by hand."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

START = 1_800_000_000_000_000_000
MIB = 1 << 20


def call(
    seq: int,
    *,
    op: str = "all_reduce",
    state: str = "completed",
    group: str = "0",
    size: int = 8,
    at_ms: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return an entry of the flight recorder: call number ``seq`` of a process group."""
    return {
        "record_id": seq, "pg_id": int(group), "process_group": (group, f"group_{group}"), "collective_seq_id": seq, "p2p_seq_id": 0,
        "op_id": seq, "profiling_name": f"nccl:{op}", "time_created_ns": START + round(1e6 * (seq if at_ms is None else at_ms)),
        "input_sizes": [[size]], "input_dtypes": ["Float"], "output_sizes": [[size]], "output_dtypes": ["Float"], "state": state,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": state == "completed",
        "timeout_ms": 600000, "is_p2p": False, "frames": [{"name": "train", "filename": "/job/train.py", "line": 40 + seq}], **more,
    }  # fmt: skip


def p2p(name: str, seq: int, state: str = "completed") -> dict[str, Any]:
    """Return an entry of a send or a receive. ``name`` is, for example, ``send 0->1``."""
    return {**call(seq, op=name, state=state), "collective_seq_id": 0, "p2p_seq_id": seq, "is_p2p": True}


def flight(entries: list[dict[str, Any]], groups: dict[str, list[int]], **more: Any) -> dict[str, Any]:
    """Return the flight recorder's dump of a rank. ``groups`` are the ranks of each process group."""
    config = {name: {"name": name, "desc": f"group_{name}", "ranks": str(ranks)} for name, ranks in groups.items()}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries, **more}


def write_flight(folder: Path, dumps: dict[int, dict[str, Any]], *, as_json: bool = False) -> list[Path]:
    """Write the dump of each rank and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for rank, dump in dumps.items():
        files.append(folder / f"nccl_trace_rank_{rank}{'.json' if as_json else ''}")
        files[-1].write_bytes(json.dumps(dump).encode() if as_json else pickle.dumps(dump))
    return files


def event(action: str, addr: int = 0, size: int = 0, stack: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": 0, "frames": stack or [], **more}


def frame(name: str, file: str, line: int = 1) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


def segment(address: int, blocks: list[tuple[int, str]], **more: Any) -> dict[str, Any]:
    """Return a segment whose blocks have these sizes and states."""
    at, placed = address, []
    for size, state in blocks:
        placed.append({"address": at, "size": size, "requested_size": size, "state": state})
        at += size
    return {
        "device": 0, "address": address, "total_size": at - address, "stream": 0, "segment_type": "large", "blocks": placed, **more,
    }  # fmt: skip


def write_snapshot(
    path: Path, segments: list[dict[str, Any]], events: list[dict[str, Any]], *, start_us: int = 0, **more: Any
) -> Path:
    """Write a snapshot of device 0, whose events are 1 ms apart, and return the file."""
    timed = [{**event_fields, "time_us": start_us + 1000 * i} for i, event_fields in enumerate(events)]
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [timed], **more}))
    return path
