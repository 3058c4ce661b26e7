"""Build the derived file of a recording: steps, ledger, gaps with causes, sums.

A derived file is always rebuilt completely and published by a rename.
"""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from sawtooth.analysis.derive import tables, timeline_sums
from sawtooth.analysis.derive.background_writer import BackgroundWriter
from sawtooth.analysis.derive.classes import AllClasses, Classes, load_signatures
from sawtooth.analysis.derive.layout import MAX_EVENTS_WITHOUT_SUMS, derived_layout, events_of
from sawtooth.analysis.derive.lost import ledger
from sawtooth.analysis.derive.lost.losses import Losses
from sawtooth.analysis.derive.modules import ModuleWork, module_table
from sawtooth.analysis.derive.operators import Sums, operator_sums, operator_table
from sawtooth.analysis.derive.parts.cuts import parts_of
from sawtooth.analysis.derive.parts.facts import add_facts, facts_of, in_counted_steps
from sawtooth.analysis.derive.parts.part import DerivedPart
from sawtooth.analysis.derive.parts.work import ClassifiedWork, Device, work_of
from sawtooth.analysis.derive.steps.device import DeviceSteps
from sawtooth.analysis.knowledge.hardware import identify
from sawtooth.analysis.version import ANALYSIS_VERSION
from sawtooth.ingest.database import CORES, attach_new, quote, release_memory, return_connection, take_connection
from sawtooth.ingest.errors import NotFoundError, SawtoothError
from sawtooth.ingest.files import commit, draft_file, is_sound
from sawtooth.ingest.schema import DataFolder

MAX_ANALYSED = 16  # GPUs analysed per trace: one host has at most 16, and the analysis of each GPU costs a replay of the trace.
MEMORY_MB = 192  # Memory limit of DuckDB, which spills to disk above it. Numpy columns are not included.
# Memory per GPU operation for the median of durations. DuckDB stores the durations twice and cannot spill them.
MEDIAN_BYTES = 80
SEARCH_BOTH_FILES = (
    # The writing connection uses this name, because views of the derived file read the recording.
    "SET search_path = 'd.main,r.main'"
)
# From this number of operators, DuckDB gets less memory. In smaller traces, the lower limit costs much time and saves little
# memory.
MANY_OPERATORS = 500_000


def ensure_derived(folder: DataFolder, recording_id: str) -> Path:
    """Return the recording's derived file; build it when it is missing, and remove older versions.

    Raises NotFoundError if the recording is missing, SawtoothError if its file is damaged or the disk is full.
    """
    target = folder.derived_file(recording_id, ANALYSIS_VERSION)
    if not target.exists():
        source = folder.recording_file(recording_id)
        if not source.exists():
            raise NotFoundError(f"Recording {recording_id} is not in this data folder. Ingest its source again.")
        try:
            derive(source, target)
        except (SawtoothError, duckdb.Error) as error:  # A full disk and a damaged file raise the same error.
            if is_sound(source):
                raise
            raise damage_error(recording_id) from error
        for old in folder.derived.glob(f"{recording_id}.*.duckdb"):
            if not old.name.startswith(f"{target.stem}."):  # A file with this prefix has the sums of the current version.
                old.unlink(missing_ok=True)
    return target


def damage_error(recording_id: str) -> SawtoothError:
    """Return the error for a recording whose file is damaged."""
    return SawtoothError(
        f"The file of recording {recording_id} is damaged. Drop its trace again: this replaces the damaged file."
    )


def derive(recording_file: Path, target: Path) -> None:
    """Compute everything that pages need from one recording and publish it at ``target``.

    Raises SourceError if the disk is full.
    """
    with draft_file(target.parent) as temporary:
        _write(recording_file, temporary)
        commit(temporary, target)


def _write(recording_file: Path, temporary: Path) -> None:
    con = take_connection(f"{MEMORY_MB}MB", temporary.parent)  # DuckDB spills into the draft's folder, which is always removed.
    try:
        con.execute(f"ATTACH '{quote(recording_file)}' AS r (READ_ONLY)")
        kind, events = con.execute(f"SELECT kind, {events_of('r.')} FROM r.recording").fetchall()[0]
        attach_new(con, temporary, "d", derived_layout(), "d.main,r.main")  # The views read both databases.
        con.execute("USE r")  # Only the writing connection has the derived file in its search path.
        if kind == "trace":
            with con.cursor() as stored, BackgroundWriter() as storing:
                _Deriving(con, stored, storing).run()  # This frees the computed data before `storing` finishes.
        con.execute("USE memory")
        con.execute("CHECKPOINT d")
        con.execute("DETACH d; DETACH r")
        if events <= MAX_EVENTS_WITHOUT_SUMS:
            return_connection(con)
            return
    except BaseException:
        con.close()
        raise
    con.close()  # After many events the connection would use more than 70 MB.


def memory_limit(operations: int) -> str:
    """Return DuckDB's memory limit for a trace with this number of GPU operations."""
    return f"{max(MEMORY_MB, MEMORY_MB // 3 + operations * MEDIAN_BYTES // 1_000_000)}MB"


class _Deriving:
    """Derive the data that ``con`` reads and write it to ``stored``.

    While one part is explained, the next part is read, and another thread stores finished tables.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, stored: duckdb.DuckDBPyConnection, storing: BackgroundWriter) -> None:
        stored.execute(SEARCH_BOTH_FILES)
        self._con, self._stored, self._storing = con, stored, storing
        self._signatures, self._device, self._decided = load_signatures(con), _device(con), dict[Any, Any]()
        self._limit = memory_limit(int(con.execute("SELECT count(*) FROM gpu_ops").fetchall()[0][0]))
        self._known, self._losses, self._classes, self._operators = dict[str, Any](), Losses(), AllClasses(), list[Sums]()
        self._explained: Future[list[pd.DataFrame]] | None = None

    def run(self) -> None:
        """Derive all parts, then the sums over all parts."""
        whole, many_operators = False, False
        self._store_next(timeline_sums.store_depths)
        with ThreadPoolExecutor(1) as explainer:
            for part in parts_of(self._con, _analysed_gpus):
                whole, many_operators = part.parts == 1, part.parts == 1 and len(part.events.ops) > MANY_OPERATORS
                if whole:
                    self._make_room(many_operators=many_operators)
                self._derive(part, explainer, many_operators=many_operators)
                del part
            if self._operators:
                self._store_next(tables.store_frame, "operators", operator_table(self._operators))
            # While a part is in memory, DuckDB gets only its base limit. A higher limit waits until no part is in memory.
            beside_parts = not whole and self._limit == memory_limit(0)
            if beside_parts:
                self._store_sums(self._limit)
            self._store_gaps()
        if not whole and not beside_parts:  # At this point no part is in memory.
            self._storing.store_next(self._stored.execute, f"SET memory_limit = '{self._limit}'")
            self._store_sums(self._limit)
        self._store_next(tables.store_losses, self._losses)
        self._store_next(tables.store_frame, "facts", _fact_rows(self._known, self._losses))

    def _store_next(self, store: Any, *arguments: Any) -> None:
        self._storing.store_next(store, self._stored, *arguments)

    def _make_room(self, *, many_operators: bool) -> None:
        """Raise DuckDB's memory limit to the need of a recording with one part."""
        if many_operators:
            self._store_next(release_memory, self._limit)
        else:
            self._storing.store_next(self._stored.execute, f"SET memory_limit = '{self._limit}'")

    def _derive(self, part: DerivedPart, explainer: ThreadPoolExecutor, *, many_operators: bool) -> None:
        """Derive one part and store its tables.

        A thread of ``explainer`` explains the lost time. The resulting gaps are stored when the next part has reached this point.
        """
        work = work_of(part, self._signatures, self._device, self._decided)
        if part.first:
            self._store_next(tables.store_steps, part)
        self._store_next(tables.store_operations, work)
        self._classes.add(work.classes, part.events.gpu.name, part.own_gpu)
        owned = {d.device: _segments(part, d, work.classes) for d in part.devices}
        self._store_next(tables.store_segments, owned, part.events.origin_ns)
        if part.parts == 1:
            self._store_sums(self._limit if many_operators else None)
        self._operators += _operators(work)
        self._known = add_facts(self._known, facts_of(work))
        if part.parts == 1 and work.modules is not None and part.devices:
            self._store_next(tables.store_frame, "modules", _modules(work, work.modules))
        self._store_gaps()  # This part waits for the previous one, so that at most two parts are in memory.
        self._explained = explainer.submit(self._losses.explained, part, work.classes.owner, owned)
        self._storing.keep_up()

    def _store_gaps(self) -> None:
        for gaps in self._explained.result() if self._explained is not None else ():
            self._store_next(tables.store_frame, "gaps", gaps)

    def _store_sums(self, limit: str | None) -> None:
        """Store the sums over all operations.

        With a ``limit`` (many operations), use all cores, and let DuckDB release its memory afterwards.
        """
        if limit is not None:
            self._storing.store_next(self._stored.execute, f"SET threads = {CORES}")
        self._store_next(tables.store_classes, self._classes)
        self._store_next(tables.store_kernels)
        if limit is not None:
            self._store_next(release_memory, limit)


def _analysed_gpus(device: np.ndarray) -> tuple[list[int], int]:
    """Return the GPUs to analyse and the number of GPUs left out, from the GPU of each operation.

    In a trace with more than MAX_ANALYSED GPUs, those with the fewest operations are left out.
    """
    numbers, operations = np.unique(device, return_counts=True)
    busiest = np.argsort(-operations, kind="stable")[:MAX_ANALYSED]
    return sorted(numbers[busiest].tolist()), len(numbers) - len(busiest)


def _device(con: duckdb.DuckDBPyConnection) -> Device:
    rows = con.execute(
        "SELECT r.vendor, d.name, d.compute_major, d.compute_minor, d.sms, d.memory_bytes "
        "FROM recording r LEFT JOIN devices d ON true ORDER BY d.device LIMIT 1"
    ).fetchall()
    vendor, name, major, minor, sms, memory = rows[0]
    gpu = identify(name, major, minor, sms, memory, vendor)
    peak = gpu.peak_tflops("fp32") if gpu is not None and gpu.vendor == "nvidia" else None
    return Device(vendor, major, peak * 1e12 if peak else None)


def _segments(part: DerivedPart, device: DeviceSteps, classes: Classes) -> ledger.Segments:
    """Return the owner of each moment of a device in this part."""
    gpu = part.events.gpu
    if part.parts == 1:
        return ledger.segments(gpu.start[device.ops], gpu.end[device.ops], classes.owner[device.ops], device.window)
    span = part.spans[device.device]
    ops_of_device = np.flatnonzero(gpu.device == device.device) if len(span.starts) else np.zeros(0, np.int64)
    start, end = (np.clip(times[ops_of_device], span.starts[:1], span.ends[:1]) for times in (gpu.start, gpu.end))
    return ledger.segments(start, end, classes.owner[ops_of_device], span)


def _fact_rows(device_facts: dict[str, Any], losses: Losses) -> pd.DataFrame:
    values = []
    for key, value in device_facts.items():
        device = key.removeprefix("device_")
        values.append(json.dumps(value | losses.facts(int(device)) if device != key else value))
    return pd.DataFrame({"key": list(device_facts), "value": values})


def _operators(work: ClassifiedWork) -> list[Sums]:
    events, part = work.part.events, work.part
    if not part.devices and not len(events.ops):
        return []
    counted = part.own_ops & in_counted_steps(part, events.ops.start)
    return operator_sums(events, counted, work.flops.count, work.uses_tensor_cores, [d.device for d in part.devices] or [0])


def _modules(work: ClassifiedWork, modules: ModuleWork) -> pd.DataFrame:
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
        tensor=work.uses_tensor_cores,
        flops=work.flops,
        devices=[device.device for device in part.devices],
    )
