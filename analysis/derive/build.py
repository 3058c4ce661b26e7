"""Build a recording's derived file: steps, ledger, gaps with causes, rollups. Rebuilt whole, published by rename."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from sawtooth.analysis.derive import rollups
from sawtooth.analysis.derive import timeline_sums as timeline_store
from sawtooth.analysis.derive.classes import AllClasses, Classes, load_signatures
from sawtooth.analysis.derive.columns import named, nullable
from sawtooth.analysis.derive.layout import FEW_EVENTS, events_of, layout_of
from sawtooth.analysis.derive.lost import ledger
from sawtooth.analysis.derive.lost.losses import Losses
from sawtooth.analysis.derive.modules import ModuleWork, module_table
from sawtooth.analysis.derive.operators import Sums, operator_sums, operator_table
from sawtooth.analysis.derive.parts.cuts import parts_of
from sawtooth.analysis.derive.parts.facts import added, facts_of, in_counted_steps
from sawtooth.analysis.derive.parts.part import Part
from sawtooth.analysis.derive.parts.work import Work, work_of
from sawtooth.analysis.derive.steps.device import STATUS_NAMES, DeviceSteps
from sawtooth.analysis.derive.storing import Storing
from sawtooth.analysis.knowledge.owners import OWNER_KEYS
from sawtooth.analysis.replay import store as replay_store
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.ingest.database import CORES, append, attach_new, borrow, give_back, give_up_memory, quoted
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.files import commit, draft, is_sound
from sawtooth.ingest.schema import DataFolder

MOST_ANALYSED = 16  # GPUs of one trace: as many as a host has; each costs a replay of the whole trace
MEMORY_MB = 192  # of the engine, which spills beyond; the columns held by numpy come on top
# A GPU operation: what the engine cannot spill are the durations that a median is of, and it holds them twice
MEDIAN_BYTES = 80
SEEN = "SET search_path = 'd.main,r.main'"  # by what stores: views of the derived file read the recording
MANY_OPERATORS = 500_000  # of a trace whose memory is watched; for fewer it costs more time than it saves bytes


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
        con.execute("USE r")  # only what stores looks into the derived file
        if kind == "trace":
            with con.cursor() as stored, Storing() as storing:
                stored.execute(SEEN)
                # What it computed is gone when only storing is left.
                _derive_trace(con, stored, storing, all_sums=events > FEW_EVENTS)
        con.execute("USE memory")
        con.execute("CHECKPOINT d")
        con.execute("DETACH d; DETACH r")
        if events <= FEW_EVENTS:
            give_back(con)
            return
    except BaseException:
        con.close()
        raise
    con.close()  # of many events it keeps seventy megabytes and more


def _derive_trace(
    con: duckdb.DuckDBPyConnection, stored: duckdb.DuckDBPyConnection, storing: Storing, *, all_sums: bool
) -> None:
    """Derive what ``con`` reads into what ``stored`` writes: while a part is explained the next is read, and what is done with is stored."""
    signatures, vendor = load_signatures(con), _vendor(con)
    limit = memory_limit(int(con.execute("SELECT count(*) FROM gpu_ops").fetchall()[0][0]))
    more_memory = limit != memory_limit(0)  # the engine may need several times what it has beside a part
    known, losses, classes, operators = dict[str, Any](), Losses(), AllClasses(), list[Sums]()
    with con.cursor() as beside, ThreadPoolExecutor(2) as others:
        beside.execute(SEEN)
        explained: Future[list[pd.DataFrame]] | None = None
        summed: Future[None] | None = None
        for part in parts_of(con, _analysed):
            events, alone = part.events, part.parts == 1
            work = work_of(part, signatures, *vendor)
            watched = alone and len(events.ops) > MANY_OPERATORS
            if watched:
                storing.then(give_up_memory, stored, limit)
            elif alone:
                storing.then(stored.execute, f"SET memory_limit = '{limit}'")
            if part.first:
                storing.then(_store_steps, stored, part)
            if part.first and not alone:
                summed = others.submit(timeline_store.store_host, beside, all_sums=all_sums)
            storing.then(_store_operations, stored, work)
            classes.add(work.classes, events.gpu.name, part.own_gpu)
            parts = {d.device: _segments(part, d, work.classes) for d in part.devices}
            storing.then(_store_segments, stored, parts, events.origin_ns)
            if alone:
                _store_sums(stored, storing, classes, limit if watched else None, all_sums=all_sums)
            operators += _operators(work)
            known = added(known, facts_of(work))
            if alone and work.modules is not None and part.devices:
                storing.then(_append, stored, "modules", _modules(work, work.modules))
            _store_gaps(stored, storing, explained)  # before the next is explained: two parts are held at most
            explained = others.submit(losses.explained, part, work.classes.owner, parts)
            storing.keep_up()
            del part, events, work, parts
        if operators:
            storing.then(_append, stored, "operators", operator_table(operators))
        if summed is not None:
            summed.result()
        if not alone and not more_memory:
            _store_sums(stored, storing, classes, limit, all_sums=all_sums)
        _store_gaps(stored, storing, explained)
        if alone:  # now that the recording is not held any more
            storing.then(partial(timeline_store.store_host, stored, all_sums=all_sums))
    if not alone and more_memory:  # now that no part is held any more
        storing.then(stored.execute, f"SET memory_limit = '{limit}'")
        _store_sums(stored, storing, classes, limit, all_sums=all_sums)
    storing.then(_store_losses, stored, losses)
    if all_sums:
        storing.then(timeline_store.store_device, stored)
    storing.then(_append, stored, "facts", _fact_rows(known, losses))


def _store_gaps(con: duckdb.DuckDBPyConnection, storing: Storing, explained: Future[list[pd.DataFrame]] | None) -> None:
    for gaps in explained.result() if explained is not None else ():
        storing.then(_append, con, "gaps", gaps)


def _store_sums(
    con: duckdb.DuckDBPyConnection, storing: Storing, classes: AllClasses, limit: str | None, *, all_sums: bool
) -> None:
    """Store what is summed of all operations; of many (there is a limit) by all cores, and let the engine give up the memory that this took."""
    if limit is not None:
        storing.then(con.execute, f"SET threads = {CORES}")
    storing.then(_store_classes, con, classes)
    storing.then(partial(rollups.store, con, all_sums=all_sums))
    if limit is not None:
        storing.then(give_up_memory, con, limit)


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


def _store_classes(con: duckdb.DuckDBPyConnection, classes: AllClasses) -> None:
    names = {"name": "name_id", "operator_name": "cpu_op_name_id", "signature": "signature_id"}
    table = classes.table().rename(columns=names)
    _append(con, "kernel_classes", table.astype({"cpu_op_name_id": "Int64", "signature_id": "Int64"}))
    # A name has one owner, but for few operations: these are listed, so that queries need not join all.
    ids, owners = classes.exceptions()
    _append(con, "owner_exceptions", pd.DataFrame({"gpu_op_id": ids, "owner": named(owners, OWNER_KEYS)}))


def _store_steps(con: duckdb.DuckDBPyConnection, part: Part) -> None:
    origin = part.events.origin_ns
    for device, window in zip(part.devices, part.windows, strict=True):
        table = device.table.rename(
            columns={"start": "start_ns", "end": "end_ns", "host_start": "host_start_ns", "host_end": "host_end_ns"}
        )
        for column in ("start_ns", "end_ns", "host_start_ns", "host_end_ns"):
            table[column] = table[column].astype(np.int64) + origin
        _append(con, "steps", table.assign(device=device.device))
        intervals = {"device": device.device, "start_ns": window.starts + origin, "end_ns": window.ends + origin}
        _append(con, "windows", pd.DataFrame(intervals))


def _store_operations(con: duckdb.DuckDBPyConnection, work: Work) -> None:
    part = work.part
    op_step = np.full(len(part.events.gpu), -1, np.int64)
    status = np.full(len(part.events.gpu), 2, np.int8)
    for device in part.devices:
        op_step[device.ops], status[device.ops] = device.op_step, device.status
    frame = pd.DataFrame(
        {
            "gpu_op_id": part.recorded("gpu", np.arange(len(op_step))),
            "step": nullable(op_step),
            "status": named(status, STATUS_NAMES),
            "category": work.classes.column("category"),
            "tensor_cores": work.classes.column("tensor_cores"),
            "flop_op_id": nullable(part.recorded("ops", work.flops.carrier_of)),
        }
    )
    if work.modules is not None:
        frame["module"] = nullable(work.modules.node)
    _append(con, "gpu_op_steps", frame if part.own_gpu.all() else frame[part.own_gpu])


def _segments(part: Part, device: DeviceSteps, classes: Classes) -> ledger.Segments:
    """Return who owns each moment of a device in this part."""
    gpu = part.events.gpu
    if part.parts == 1:
        return ledger.segments(gpu.start[device.ops], gpu.end[device.ops], classes.owner[device.ops], device.window)
    span = part.spans[device.device]
    mine = np.flatnonzero(gpu.device == device.device) if len(span.starts) else np.zeros(0, np.int64)
    start, end = (np.clip(times[mine], span.starts[:1], span.ends[:1]) for times in (gpu.start, gpu.end))
    return ledger.segments(start, end, classes.owner[mine], span)


def _store_segments(con: duckdb.DuckDBPyConnection, parts: dict[int, ledger.Segments], origin: int) -> None:
    for device, of_device in parts.items():
        frame = pd.DataFrame({"device": device, "start_ns": of_device.starts + origin, "end_ns": of_device.ends + origin})
        _append(con, "segments", frame.assign(owner=named(of_device.owner, OWNER_KEYS)))


def _store_losses(con: duckdb.DuckDBPyConnection, losses: Losses) -> None:
    _append(con, "causes", losses.causes())
    if losses.unprofiled is not None:
        con.execute("INSERT INTO d.replays VALUES ('unprofiled', ?)", [replay_store.dump(losses.unprofiled)])


def _fact_rows(known: dict[str, Any], losses: Losses) -> pd.DataFrame:
    """Return the rows of table ``facts``: what is known of each device, and what its losses tell."""
    values = []
    for key, value in known.items():
        device = key.removeprefix("device_")
        values.append(json.dumps(value | losses.facts(int(device)) if device != key else value))
    return pd.DataFrame({"key": list(known), "value": values})


def _operators(work: Work) -> list[Sums]:
    events, part = work.part.events, work.part
    if not part.devices and not len(events.ops):
        return []
    counted = part.own_ops & in_counted_steps(part, events.ops.start)
    return operator_sums(events, counted, work.flops.count, work.tensor, [d.device for d in part.devices] or [0])


def _modules(work: Work, modules: ModuleWork) -> pd.DataFrame:
    part = work.part
    selected = np.zeros(len(part.events.gpu), bool)
    for device in part.devices:
        counted = device.table["counted"].to_numpy(bool) if len(device.table) else np.zeros(0, bool)
        selected[device.ops] = (device.op_step >= 0) & counted[np.maximum(device.op_step, 0)] if counted.any() else True
    return module_table(
        events=part.events,
        work=modules,
        selected=selected,
        counted_call=in_counted_steps(part, modules.tree.start),
        tensor=work.tensor,
        flops=work.flops,
        devices=[device.device for device in part.devices],
    )
