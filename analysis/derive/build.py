"""Build a recording's derived file: steps, ledger, gaps with causes, rollups. Rebuilt whole, published by rename."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from sawtooth.analysis.derive import rollups
from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.derive.classes import Classes, Signatures, classify_operations, load_signatures
from sawtooth.analysis.derive.columns import named, nullable
from sawtooth.analysis.derive.events import GPU_KINDS, Events, load_events
from sawtooth.analysis.derive.flop_counts import FlopCounts, device_flops, operator_flop_counts
from sawtooth.analysis.derive.host import HostFacts, load_host_facts
from sawtooth.analysis.derive.host_only import host_only
from sawtooth.analysis.derive.layout import FEW_EVENTS, events_of, layout_of
from sawtooth.analysis.derive.lost import ledger
from sawtooth.analysis.derive.lost.losses import Losses, find_losses
from sawtooth.analysis.derive.modules import ModuleWork, module_table, module_work
from sawtooth.analysis.derive.operators import operator_table
from sawtooth.analysis.derive.steps.device import STATUS_NAMES, DeviceSteps, device_steps
from sawtooth.analysis.derive.steps.host import HostSteps, find_host_steps
from sawtooth.analysis.derive.storing import Storing
from sawtooth.analysis.knowledge.owners import OWNER_KEYS, TENSOR_CORES_USED
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.ingest.database import append, attach_new, borrow, give_back, give_up_memory, quoted
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.files import commit, draft, is_sound
from sawtooth.ingest.schema import DataFolder

MOST_ANALYSED = 16  # GPUs of one trace: as many as a host has; each costs a replay of the whole trace
MEMORY_MB = 192  # of the engine, which spills beyond; the columns held by numpy come on top
MEDIAN_BYTES = (
    80  # a GPU operation: what the engine cannot spill are the durations that a median is of, and it holds them twice
)
MANY_OPERATORS = 500_000  # of a trace whose memory is watched; for fewer it costs more time than it saves bytes


@dataclass(frozen=True)
class Trace:
    """A trace in memory while it is derived."""

    con: duckdb.DuckDBPyConnection
    events: Events
    signatures: Signatures
    classes: Classes
    host: HostSteps
    devices: list[DeviceSteps]
    gpus_left_out: int


def ensure_derived(folder: DataFolder, recording_id: str) -> Path:
    """Return the recording's derived file, building it when it is missing; older versions are removed.

    Raises NotFoundError when the recording is missing, SawtoothError when its file is damaged or the disk is full.
    """
    target = folder.derived_file(recording_id, ANALYSIS_VERSION)
    if not target.exists():
        source = folder.recording_file(recording_id)
        if not source.exists():
            raise NotFoundError(f"Recording {recording_id} is not in this data folder. Ingest its source again.")
        try:
            derive(source, target)
        except (SawtoothError, duckdb.Error) as error:  # a full disk and a damaged file raise the same: the file itself tells
            if is_sound(source):
                raise
            raise damaged(recording_id) from error
        for old in folder.derived.glob(f"{recording_id}.*.duckdb"):
            if old != target:
                old.unlink(missing_ok=True)
    return target


def damaged(recording_id: str) -> SawtoothError:
    """Return the error for a recording whose file is damaged."""
    return SawtoothError(
        f"The file of recording {recording_id} is damaged. Drop its trace again: that puts a sound one in its place."
    )


def derive(recording_file: Path, target: Path) -> None:
    """Compute everything pages need of one recording and publish it at ``target``. Raises SourceError where the disk is full."""
    with draft(target.parent) as temporary:
        _write(recording_file, temporary)
        commit(temporary, target)


def _write(recording_file: Path, temporary: Path) -> None:
    con = borrow(f"{MEMORY_MB}MB", temporary.parent)  # what it spills is gone with the draft, whatever happens
    try:
        con.execute(f"ATTACH '{quoted(recording_file)}' AS r (READ_ONLY)")
        kind, events = con.execute(f"SELECT kind, {events_of('r.')} FROM r.recording").fetchall()[0]
        attach_new(con, temporary, "d", layout_of(events), "d.main,r.main")  # its views read both
        if kind == "trace":
            with Storing() as storing:  # nothing but what it is told uses the connection while it stores
                _derive_trace(con, storing, all_sums=events > FEW_EVENTS)  # what it computed is gone when only storing is left
        con.execute("USE memory")
        con.execute("CHECKPOINT d")
        con.execute("DETACH d; DETACH r")
    except BaseException:
        con.close()
        raise
    give_back(con)


def _derive_trace(con: duckdb.DuckDBPyConnection, storing: Storing, *, all_sums: bool) -> None:
    events = load_events(con)
    signatures = load_signatures(con)
    vendor, major = _vendor(con)
    classes = classify_operations(events, signatures, vendor, major)
    host = find_host_steps(events)
    analysed, left_out = _analysed(events.gpu.device)
    devices = [device_steps(events, host, d) for d in analysed]
    trace = Trace(
        con=con, events=events, signatures=signatures, classes=classes, host=host, devices=devices, gpus_left_out=left_out
    )
    tensor = classes.among("tensor_cores", TENSOR_CORES_USED)
    flops = operator_flop_counts(events, signatures, tensor, vendor)
    facts = load_host_facts(con, events.origin_ns)
    large, limit = len(events.ops) > MANY_OPERATORS, memory_limit(len(events.gpu))
    con.execute(f"SET memory_limit = '{limit}'")
    if large:
        give_up_memory(con, limit)
    work = module_work(events, facts)
    storing.then(_store_classes, trace)
    storing.then(_store_steps, trace, flops.carrier_of, work)
    parts = {
        d.device: ledger.segments(events.gpu.start[d.ops], events.gpu.end[d.ops], classes.owner[d.ops], d.window)
        for d in devices
    }
    storing.then(_store_segments, con, parts, events.origin_ns)
    storing.then(partial(rollups.store, con, all_sums=all_sums))
    if large:
        storing.then(give_up_memory, con, limit)
    if trace.devices or len(events.ops):  # now: together with the losses its columns would take the most memory
        storing.then(_append, con, "operators", _operators(trace, flops))
    known = _facts(trace, flops, facts)
    losses = find_losses(events, facts, devices, classes.owner, parts)
    storing.then(_store_losses, con, losses)
    storing.then(partial(timeline_store.store, con, all_sums=all_sums))
    storing.then(_append, con, "facts", _fact_rows(known, losses))
    if work is not None and trace.devices:
        storing.then(_append, con, "modules", _modules(trace, work, flops))


def memory_limit(operations: int) -> str:
    """Return the engine's limit for a trace of so many GPU operations."""
    return f"{max(MEMORY_MB, MEMORY_MB // 3 + operations * MEDIAN_BYTES // 1_000_000)}MB"


def _analysed(device: np.ndarray) -> tuple[list[int], int]:
    """Return the GPUs to analyse, of each operation's GPU, and how many are left out: more than a host has, those with the fewest operations."""
    numbers, operations = np.unique(device, return_counts=True)
    most = np.argsort(-operations, kind="stable")[:MOST_ANALYSED]
    return sorted(numbers[most].tolist()), len(numbers) - len(most)


def _vendor(con: duckdb.DuckDBPyConnection) -> tuple[str | None, int | None]:
    rows = con.execute(
        "SELECT r.vendor, d.compute_major FROM recording r LEFT JOIN devices d ON true ORDER BY d.device LIMIT 1"
    ).fetchall()
    return rows[0][0], rows[0][1]


def _append(con: duckdb.DuckDBPyConnection, table: str, frame: pd.DataFrame) -> None:
    if len(frame):
        append(con, f"d.{table}", frame)


def _store_classes(trace: Trace) -> None:
    table = trace.classes.table.rename(
        columns={"name": "name_id", "operator_name": "cpu_op_name_id", "signature": "signature_id"}
    )
    _append(trace.con, "kernel_classes", table.astype({"cpu_op_name_id": "Int64", "signature_id": "Int64"}))
    # A name has one owner, but for few operations: those whose owner is not the first by the alphabet are listed, so that queries need not join all.
    names, owners = table["name_id"].tolist(), table["owner"].tolist()
    first_by_alphabet: dict[int, str] = {}
    for name, whose in zip(names, owners, strict=True):
        first_by_alphabet[name] = min(whose, first_by_alphabet.get(name, whose))
    other_owner = np.array([first_by_alphabet[name] != whose for name, whose in zip(names, owners, strict=True)], bool)
    other = np.flatnonzero(other_owner[trace.classes.row])
    owner = named(trace.classes.owner[other], OWNER_KEYS)
    _append(trace.con, "owner_exceptions", pd.DataFrame({"gpu_op_id": other, "owner": owner}))


def _store_steps(trace: Trace, flop_operator: np.ndarray, work: ModuleWork | None) -> None:
    origin = trace.events.origin_ns
    op_step = np.full(len(trace.events.gpu), -1, np.int64)
    status = np.full(len(trace.events.gpu), 2, np.int8)
    for device in trace.devices:
        table = device.table.rename(
            columns={"start": "start_ns", "end": "end_ns", "host_start": "host_start_ns", "host_end": "host_end_ns"}
        )
        for column in ("start_ns", "end_ns", "host_start_ns", "host_end_ns"):
            table[column] = table[column].astype(np.int64) + origin
        _append(trace.con, "steps", table.assign(device=device.device))
        window = device.window
        _append(
            trace.con,
            "windows",
            pd.DataFrame({"device": device.device, "start_ns": window.starts + origin, "end_ns": window.ends + origin}),
        )
        op_step[device.ops], status[device.ops] = device.op_step, device.status
    frame = pd.DataFrame(
        {
            "gpu_op_id": np.arange(len(op_step)),
            "step": nullable(op_step),
            "status": named(status, STATUS_NAMES),
            "category": trace.classes.column("category"),
            "tensor_cores": trace.classes.column("tensor_cores"),
            "flop_op_id": nullable(flop_operator),
        }
    )
    if work is not None:
        frame["module"] = nullable(work.node)
    _append(trace.con, "gpu_op_steps", frame)


def _store_segments(con: duckdb.DuckDBPyConnection, parts: dict[int, ledger.Segments], origin: int) -> None:
    for device, of_device in parts.items():
        frame = pd.DataFrame({"device": device, "start_ns": of_device.starts + origin, "end_ns": of_device.ends + origin})
        _append(con, "segments", frame.assign(owner=named(of_device.owner, OWNER_KEYS)))


def _store_losses(con: duckdb.DuckDBPyConnection, losses: Losses) -> None:
    for of_device in losses.gaps:
        _append(con, "gaps", of_device)
    _append(con, "causes", losses.causes)
    if losses.unprofiled is not None:
        con.execute("INSERT INTO d.replays VALUES ('unprofiled', ?)", [replay_store.dump(losses.unprofiled)])


def _facts(trace: Trace, flops: FlopCounts, host: HostFacts) -> dict[str, Any]:
    counted_ops = _in_counted_steps(trace, trace.events.ops.start)
    alone = len(trace.devices) == 1
    facts: dict[str, Any] = {
        "step_source": trace.host.source,
        "step_annotation": trace.host.annotation,
    }
    if not trace.devices:
        facts["host_only"] = host_only(trace.events, trace.host, host)
    for device in trace.devices:
        counts = np.bincount(device.status, minlength=3)
        dur = trace.events.gpu.end[device.ops] - trace.events.gpu.start[device.ops]
        is_kernel = trace.events.gpu.kind[device.ops] == GPU_KINDS.index("kernel")
        counted = device.table["counted"].to_numpy(bool)
        in_counted = (device.op_step >= 0) & (counted[np.maximum(device.op_step, 0)] if len(counted) else False)
        in_graph = (trace.events.gpu.graph[device.ops] >= 0) | _graph_launched(trace.events)[device.ops]
        facts[f"device_{device.device}"] = {
            **{name: int(counts[i]) for i, name in enumerate(STATUS_NAMES)},
            **{f"{name}_ns": int(dur[device.status == i].sum()) for i, name in enumerate(STATUS_NAMES)},
            "kernels": int(is_kernel.sum()),
            "kernels_in_counted_steps": int((is_kernel & in_counted).sum()),
            "graph_kernels_in_counted_steps": int((is_kernel & in_counted & in_graph).sum()),
            "counted_steps": int(counted.sum()),
            "graph_ns": int(dur[in_graph].sum()),
            "gpu_ns": int(dur.sum()),
            **({"gpus_left_out": trace.gpus_left_out} if trace.gpus_left_out and device is trace.devices[0] else {}),
            "flops": device_flops(
                events=trace.events, classes=trace.classes, counts=flops, device=device, counted_ops=counted_ops, alone=alone
            ),
        }
    return facts


def _fact_rows(known: dict[str, Any], losses: Losses) -> pd.DataFrame:
    """Return the rows of table ``facts``: what is known of each device, and what its losses tell."""
    lost = {
        f"device_{d}": {"estimate": estimate, "phases": losses.phases.get(d, [])} for d, estimate in losses.estimates.items()
    }
    return pd.DataFrame({"key": list(known), "value": [json.dumps(v | lost[k] if k in lost else v) for k, v in known.items()]})


def _operators(trace: Trace, flops: FlopCounts) -> pd.DataFrame:
    tensor = trace.classes.among("tensor_cores", TENSOR_CORES_USED)
    devices = [d.device for d in trace.devices] or [0]
    return operator_table(trace.events, _in_counted_steps(trace, trace.events.ops.start), flops.count, tensor, devices)


def _modules(trace: Trace, work: ModuleWork, flops: FlopCounts) -> pd.DataFrame:
    tensor = trace.classes.among("tensor_cores", TENSOR_CORES_USED)
    selected = np.zeros(len(trace.events.gpu), bool)
    for device in trace.devices:
        counted = device.table["counted"].to_numpy(bool) if len(device.table) else np.zeros(0, bool)
        selected[device.ops] = (device.op_step >= 0) & counted[np.maximum(device.op_step, 0)] if counted.any() else True
    calls = _in_counted_steps(trace, work.tree.start)
    return module_table(
        events=trace.events,
        work=work,
        selected=selected,
        counted_call=calls,
        tensor=tensor,
        flops=flops,
        devices=[device.device for device in trace.devices],
    )


def _in_counted_steps(trace: Trace, start: np.ndarray) -> np.ndarray:
    """Tell which starts on the host lie in a counted step of any device; all of them where there are no steps."""
    counted = np.zeros(len(trace.host.starts), bool)
    for device in trace.devices:
        if len(device.table):
            counted |= device.table["counted"].to_numpy(bool)
    if not counted.any():
        return np.ones(len(start), bool)
    step = np.searchsorted(trace.host.starts, start, side="right") - 1
    at = np.maximum(step, 0)
    return (step >= 0) & (start < trace.host.ends[at]) & counted[at]


def _graph_launched(events: Events) -> np.ndarray:
    """Tell which GPU operations a graph launch started: they have no operator of their own."""
    graph_names = [i for i, name in enumerate(events.names) if "GraphLaunch" in name]
    call = np.maximum(events.gpu.call, 0)
    if not len(events.calls):
        return np.zeros(len(events.gpu), bool)
    return (events.gpu.call >= 0) & np.isin(events.calls.name[call], graph_names)
