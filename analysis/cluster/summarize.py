"""The summary of one source: rows for the devices of a trace, or the GPUs of a telemetry file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from sawtooth.analysis.cluster.storage import SourceVersion
from sawtooth.analysis.intervals import Intervals, overlaps
from sawtooth.analysis.nulls import none_if_null
from sawtooth.analysis.ranks.collectives import load, step_labels
from sawtooth.analysis.ranks.contention import Shape, kernels_of
from sawtooth.analysis.ranks.stragglers.outliers import RankLosses
from sawtooth.analysis.run.model import RankResult
from sawtooth.analysis.run.rank import RankTrace
from sawtooth.analysis.store.library import Library, Recording
from sawtooth.analysis.store.recording_row import RecordingRow, row_of
from sawtooth.analysis.telemetry.attribution import metadata_of, process_ids
from sawtooth.analysis.telemetry.clock import origin_of
from sawtooth.analysis.telemetry.run_telemetry import RunTelemetry
from sawtooth.analysis.telemetry.summary import summarize
from sawtooth.analysis.version import TOOL_VERSION
from sawtooth.ingest.manifest import UserFacts

Row = dict[str, Any]
OUTSIDE_STEPS = -1  # Step of a call outside all steps.
NO_WORK = "The trace has no GPU work."


def rank_rows(library: Library, recording_id: str, source: SourceVersion) -> list[Row]:
    """Return the rows of a trace, one per device with GPU work. Call ``ensure_derived`` before."""
    with library.open(recording_id) as recording:
        row = row_of(recording)
        trace = RankTrace(recording, row, UserFacts(), RunTelemetry(()), None, library.folder)
        fields = {**_source_fields(row, source), **_identity(recording, row), "kind": "trace"}
        return [{**fields, **_device_row(recording, rank)} for rank, _ in trace.ranks()] or [{**fields, "why": NO_WORK}]


def telemetry_rows(library: Library, recording_id: str, source: SourceVersion) -> list[Row]:
    """Return the rows of a telemetry file, one per sampled GPU."""
    with library.open(recording_id, derived=False) as recording:
        row = row_of(recording)
        host = row.host or origin_of(recording).host
        pids = metadata_of(recording).get("processes")
        rows = []
        for sampled in summarize(recording):
            device_pids = pids.get(str(sampled.device), ()) if isinstance(pids, dict) else ()
            rows.append(
                {
                    **_source_fields(row, source),
                    "kind": "telemetry",
                    "host": host,
                    "device": sampled.device,
                    "gpu": sampled.name,
                    "uuid": sampled.uuid,
                    "pids": [int(pid) for pid in device_pids],
                    "sampled": msgspec.json.encode(sampled).decode(),
                }
            )
        return rows


def refusal_row(source: SourceVersion, reason: str) -> Row:
    """Return the row of a source that cannot be read, so that it is not tried again."""
    return {"kind": "refused", "source": source.url, "state": source.state, "tool": TOOL_VERSION, "why": reason}


def _source_fields(row: RecordingRow, source: SourceVersion) -> Row:
    return {
        "source": source.url,
        "state": source.state,
        "bytes": row.source_bytes,
        "id": row.id,
        "tool": TOOL_VERSION,
        "first_ns": row.first_ns,
    }


def _identity(recording: Recording, row: RecordingRow) -> Row:
    metadata = metadata_of(recording)
    groups = (metadata.get("distributedInfo") or {}).get("pg_config") if isinstance(metadata, dict) else None
    first_group = groups[0] if isinstance(groups, list) and groups else {}
    # All ranks of a job have the same values, so their hash identifies the job.
    job = [row.world_size, row.backend, row.nccl_version]
    has_world = row.world_size is not None
    pids = recording.rows("SELECT DISTINCT pid FROM threads JOIN runtime_calls USING (thread_id)")
    return {
        "rank": row.rank,
        "world": row.world_size,
        "job": hashlib.sha256(msgspec.json.encode([str(job), first_group], order="sorted")).hexdigest()[:16]
        if has_world
        else None,
        "host": row.host,
        "pids": sorted(process_ids(pids)),
    }


def _device_row(recording: Recording, rank: RankResult) -> Row:
    uuids = recording.rows("SELECT uuid FROM devices WHERE device = ?", [rank.device])
    labels = step_labels(rank.steps).tolist()
    position = {label: i for i, label in enumerate(labels)}
    steps = zip(labels, *(rank.steps[c].tolist() for c in ("counted", "start_ns", "end_ns")), strict=True)
    row: Row = {
        "device": rank.device,
        "gpu": rank.device_name,
        "uuid": uuids[0][0] if uuids else None,
        "step_ms": rank.best.mean_ms,
        "run_ms": rank.best.ms,  # The run's step time, computed from this rank alone.
        "work_ms": rank.work.kernel_ns / 1e6 if rank.work is not None else None,
        "step": [{"label": n, "counted": bool(c), "start_ns": int(s), "end_ns": int(e)} for n, c, s, e in steps],
        "call": _calls(recording, rank, position),
    }
    kernels = kernels_of(recording, rank.device)
    # Other ranks' kernels are not available here. So the usual times come from this rank's kernels without overlapping
    # communication.

    quiet_ns = {shape: ns for shape, (ns, _) in kernels.quiet.items()}
    return row | _loss_columns(RankLosses.from_recording(recording, rank, kernels, quiet_ns))


def _calls(recording: Recording, rank: RankResult, position: Mapping[str, int]) -> list[Row]:
    rows, exposed = load(recording, rank.device, rank.steps)
    start = rows["start_ns"].to_numpy(np.int64)
    starts, _, call, _ = overlaps(Intervals(start, start + rows["dur_ns"].to_numpy(np.int64)), exposed)
    # The time from a call's start until it is exposed. If it is never exposed, this is the call's duration.
    exposed_from = rows["dur_ns"].to_numpy(np.int64).copy()
    np.minimum.at(exposed_from, call, starts - start[call])
    rows = rows.assign(
        described=rows["has_arguments"],  # The column of the file format is named "described".
        step=[OUTSIDE_STEPS if label is None else position.get(label, OUTSIDE_STEPS) for label in rows["step"]],
        exposed_from_ns=exposed_from,
    )
    columns = [
        "name", "dtype", "group", "group_size", "description", "peer", "sends", "receives", "in_elements", "out_elements", "bytes", "forward", "serves", "sequence", "described",
        "step", "start_ns", "dur_ns", "exposed_ns", "exposed_from_ns",
    ]  # fmt: skip
    return [
        {name: none_if_null(value) for name, value in zip(columns, row, strict=True)}
        for row in rows[columns].astype(object).itertuples(index=False)
    ]


def _loss_columns(losses: RankLosses) -> Row:
    # "quiet" are kernels without overlapping communication, "beside" kernels that always overlapped with communication.
    return {
        "lost": [{"cause": cause, "ms": ms} for cause, ms in losses.lost_ms.items() if ms],
        "held_ms": losses.interrupted_ms,
        "quiet": [{"kernel": kernel_number(shape), "ns": ns, "calls": calls} for shape, (ns, calls) in losses.quiet.items()],
        "beside": sorted(kernel_number(shape) for shape in losses.shapes - losses.quiet.keys()),
    }


def kernel_number(shape: Shape) -> int:
    """Return a hash of a kernel and its shape; it is the same on all ranks."""
    return int.from_bytes(hashlib.blake2b("\n".join(shape).encode(), digest_size=8).digest(), "big", signed=True)
