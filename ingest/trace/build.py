"""Write the tables of one trace into a recording with clock, ids and links, in slices of time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sawtooth.ingest.decode import I64, NULL, integers, small_integers
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.trace.graph_annotations import annotated_nodes
from sawtooth.ingest.trace.link import LaunchLinks, Nesting, enclosing_ids
from sawtooth.ingest.trace.overruns import Overruns
from sawtooth.ingest.trace.source import GPU_KINDS, MAX_DEVICES, MIN_UNIX_NS, TABLES, Facts, TraceTables
from sawtooth.ingest.trace.spool import Columns, slices
from sawtooth.ingest.writer import Writer

GPU_SLICE_ROWS = 1 << 18  # Half of SLICE_ROWS, because GPU operations have twice as many columns as other tables.


def store(trace: TraceTables, facts: Facts, writer: Writer) -> dict[str, Any]:
    """Write every table of ``trace`` and return the columns of its recording row.

    Raises SourceError if the trace names too many GPUs.
    """
    base = facts.base_ns or 0
    duplicates = _Linking(trace, facts, writer, base).run()
    stored = [trace.tables[key] for key in TABLES]
    largest = max(table.last for table in stored if table.last is not None)
    _write_names(trace, writer)
    for row in facts.devices:
        writer.insert_row("devices", row)
    if facts.samples is not None:
        writer.insert("samples", {**facts.samples, "time_ns": facts.samples["time_ns"] + base})
    for diagnostic in facts.diagnostics():
        writer.insert_row("diagnostics", vars(diagnostic))
    return {
        **facts.recording,
        "kind": "trace",
        "event_count": sum(table.rows for table in stored) - duplicates,
        "clock": "unix" if base or largest > MIN_UNIX_NS else "unknown",
        "base_time_ns": facts.base_ns,
        "first_ns": min(table.first for table in stored if table.first is not None) + base,
        "last_ns": largest + base,
        "truncated": facts.truncated,
    }


class _Linking:
    """Link the rows of one trace: match calls and GPU operations, nest operators, and place calls in them."""

    def __init__(self, trace: TraceTables, facts: Facts, writer: Writer, base: int) -> None:
        self._trace, self._tables, self._writer, self._base = trace, trace.tables, writer, base
        self._tolerance, self._shapes = facts.tolerance_ns, facts.shapes

    def run(self) -> int:
        """Write all event tables; return the number of duplicates left out."""
        launches = self._launch_table()
        call_of, kept_rows, external_ids, duplicates = self._gpu_launches(launches)
        if launches.repeated:
            self._trace.note("correlation_repeated", "", launches.repeated)
        del launches  # Free the index early, because it has an entry for every call.
        launched = np.bincount(call_of[call_of >= 0], minlength=self._tables["calls"].rows)
        call_op, op_of = self._host(launched, external_ids)
        self._gpu(kept_rows, call_of, call_op, op_of)
        self._python()
        self._other_tables()
        return duplicates

    def _launch_table(self) -> LaunchLinks:
        table, row_count = self._tables["calls"], 0
        correlation, start = np.empty(table.rows, np.int64), np.empty(table.rows, np.int64)
        for (calls,) in slices(table):
            if calls:
                rows = slice(row_count, row_count := row_count + len(calls["start"]))
                correlation[rows], start[rows] = calls["correlation"], calls["start"]
        return LaunchLinks(correlation, start)

    def _gpu_launches(self, launches: LaunchLinks) -> tuple[I64, list[NDArray[np.bool_]], I64, int]:
        """Return calls of distinct operations, the rows to write, External ids, and the number of duplicates.

        The rows to write are masks, one for each slice.
        """
        none, devices, overruns = np.empty(0, np.int64), set[int](), Overruns()
        calls, kept_rows, external_ids = [none], [], [none]
        for (gpu,) in slices(self._tables["gpu"], slice_rows=GPU_SLICE_ROWS):
            if not gpu:
                kept_rows.append(np.ones(0, bool))
                continue
            devices.update(np.unique(gpu["device"]).tolist())
            if len(devices) > MAX_DEVICES:
                sentence = f"The trace names more than {MAX_DEVICES} GPUs, so its device numbers are damaged. Record it again."
                raise SourceError("E-LIMIT", sentence)
            keep = _not_duplicated(gpu)
            overruns.add(gpu, keep)
            call = launches.rows_for(gpu["correlation"][keep], gpu["start"][keep])
            external = gpu["external_id"][keep]
            calls.append(call)
            kept_rows.append(keep)
            external_ids.append(_distinct(external[external != NULL]))
        total = np.concatenate(calls)
        duplicates = self._tables["gpu"].rows - len(total)
        if duplicates:
            self._trace.note("duplicate", "", duplicates)
        self._cut, self._cut_dur = overruns.cuts(total)
        if len(self._cut):
            self._trace.note("overrun", "", len(self._cut))
        return total, kept_rows, _distinct(np.concatenate(external_ids)), duplicates

    def _host(self, launched: I64, external_ids: I64) -> tuple[I64, tuple[I64, I64]]:
        """Write operators and calls; return each call's operator, and the operators with a used External id."""
        nesting, none = Nesting(self._tolerance), np.empty(0, np.int64)
        call_op, externals, carriers, op_id, call_id = np.empty(self._tables["calls"].rows, np.int64), [none], [none], 0, 0
        for ops, calls in slices(self._tables["ops"], self._tables["calls"]):
            since = int(calls["start"][0]) if calls else None
            thread = ops.get("thread_id", none.astype(np.int32))
            nested = nesting.add(thread, ops.get("start", none), ops.get("dur", none), since)
            if ops:
                parent, depth = nested.parents_and_depths()
                self._write_ops(op_id, ops, parent, depth)
                is_used = _is_among(ops["external_id"], external_ids)
                externals.append(ops["external_id"][is_used])
                carriers.append(np.flatnonzero(is_used) + op_id)
                op_id += len(parent)
            if calls:
                op_ids = enclosing_ids(nested, calls["thread_id"], calls["start"], calls["dur"], self._tolerance)
                columns = self._times(calls, "name_id", "thread_id") | {
                    "correlation": calls["correlation"],
                    "cpu_op_id": _null_if_negative(op_ids),
                }
                count = len(op_ids)
                self._writer.insert(
                    "runtime_calls",
                    {"call_id": _ids(call_id, count), **columns, "gpu_ops": launched[call_id : call_id + count]},
                )
                call_op[call_id : call_id + count] = op_ids
                call_id += count
        external = np.concatenate(externals)
        order = np.argsort(external, kind="stable")
        return call_op, (external[order], np.concatenate(carriers)[order])

    def _gpu(self, kept_rows: list[NDArray[np.bool_]], call_of: I64, call_op: I64, op_of: tuple[I64, I64]) -> None:
        kinds, row_count = pa.array(GPU_KINDS), 0
        for (table,), keep in zip(slices(self._tables["gpu"], slice_rows=GPU_SLICE_ROWS), kept_rows, strict=True):
            if not table:
                continue
            gpu = table if keep.all() else {name: values[keep] for name, values in table.items()}
            count = len(gpu["start"])
            first, end = np.searchsorted(self._cut, (row_count, row_count + count))
            if end > first:
                gpu = {**gpu, "dur": gpu["dur"].copy()}
                gpu["dur"][self._cut[first:end] - row_count] = self._cut_dur[first:end]
            call = call_of[row_count : row_count + count]
            op = np.where(call >= 0, call_op[call], -1) if len(call_op) else np.full(count, -1)
            op = np.where(op >= 0, op, _by_external_id(*op_of, gpu["external_id"]))
            self._writer.insert(
                "gpu_ops",
                {
                    "gpu_op_id": _ids(row_count, count),
                    "kind": pa.DictionaryArray.from_arrays(pa.array(gpu["kind"]), kinds),
                    **self._times(gpu, "name_id", "device", "stream"),
                    **_select(gpu, "correlation", "external_id"),
                    "call_id": _null_if_negative(call),
                    "cpu_op_id": _null_if_negative(op),
                    **{name: values[gpu["shape"]] for name, values in self._shapes.items()},
                    **_select(gpu, "registers_per_thread", "shared_memory_bytes", "blocks_per_sm", "warps_per_sm"),
                    **_select(gpu, "occupancy_pct", "bytes", "graph_id", "graph_node_id"),
                },
            )
            self._write_collectives(gpu, row_count, "gpu_op_id")
            row_count += count

    def _python(self) -> None:
        nesting, row_count = Nesting(self._tolerance), 0
        for (calls,) in slices(self._tables["python"]):
            if calls:
                parent, _ = nesting.add(calls["thread_id"], calls["start"], calls["dur"]).parents_and_depths()
                columns = {"python_call_id": _ids(row_count, len(parent)), **self._times(calls, "name_id", "thread_id")}
                columns |= {"parent_id": _null_if_negative(parent), "module_id": calls["module_id"]}
                self._writer.insert("python_calls", columns)
                row_count += len(parent)

    def _other_tables(self) -> None:
        id_columns = {"gpu_annotations": ("name_id", "device", "stream"), "overheads": ("name_id", "thread_id")}
        for table, columns_of_ids in id_columns.items():
            for (rows,) in slices(self._tables[table]):
                self._writer.insert(table, rows and self._times(rows, *columns_of_ids))
        self._writer.insert("graph_annotations", annotated_nodes(self._tables["graph_annotations"]))
        kinds = pa.array(list(self._trace.ids["sync_kinds"]), pa.string())
        for (rows,) in slices(self._tables["syncs"]):
            if rows:
                columns = self._times(rows, "device", "stream", "correlation", "wait_on_stream", "wait_on_event_correlation")
                self._writer.insert("syncs", {"kind": pa.DictionaryArray.from_arrays(pa.array(rows["kind"]), kinds), **columns})
        names = {"allocated": "total_allocated_bytes", "reserved": "total_reserved_bytes"}
        for (rows,) in slices(self._tables["memory"]):
            if rows:
                columns = {names.get(name, name): values for name, values in rows.items() if name != "start"}
                self._writer.insert("allocations", {"time_ns": rows["start"] + self._base, **columns})

    def _times(self, rows: Columns, *names: str) -> Columns:
        return {**_select(rows, *names), "start_ns": rows["start"] + self._base, "dur_ns": rows["dur"]}

    def _write_ops(self, first: int, ops: Columns, parent: I64, depth: NDArray[np.int32]) -> None:
        kinds, extras = pa.array(["op", "annotation"]), pa.array([m[0] for m in self._trace.ids["extras"]], pa.string())
        self._writer.insert(
            "cpu_ops",
            {
                "cpu_op_id": _ids(first, len(parent)),
                "kind": pa.DictionaryArray.from_arrays(pa.array(ops["annotation"].astype(np.int8)), kinds),
                **self._times(ops, "name_id", "thread_id"),
                "parent_id": _null_if_negative(parent),
                "depth": depth,
                **_select(ops, "external_id", "sequence_number", "forward_thread", "signature_id"),
                "extra": pa.DictionaryArray.from_arrays(pa.array(ops["extra"], mask=ops["extra"] < 0), extras),
            },
        )
        self._write_collectives(ops, first, "cpu_op_id")

    def _write_collectives(self, rows: Columns, first: int, key: str) -> None:
        for index in np.flatnonzero(rows["collective"] >= 0):
            args = self._trace.collectives[rows["collective"][index]]
            group_size, source, destination = small_integers([args.group_size, args.source, args.destination])
            peer = source if source != NULL else destination
            numbers = [*integers([args.in_elements, args.out_elements, args.sequence]), group_size, peer]
            row: dict[str, Any] = {key: first + int(index)}
            texts = {"name": args.name, "dtype": args.dtype, "group_name": args.group_name}
            texts |= {"group_description": args.group_description, "group_ranks": args.group_ranks}
            row |= {name: None if value is None else str(value) for name, value in texts.items()}
            names = ("in_elements", "out_elements", "sequence", "group_size", "peer_rank")
            row |= {name: None if value == NULL else value for name, value in zip(names, map(int, numbers), strict=True)}
            row["asynchronous"] = None if args.asynchronous is None else str(args.asynchronous).lower() in ("true", "1")
            self._writer.insert_later("collectives", row)


def _not_duplicated(gpu: Columns) -> NDArray[np.bool_]:
    """Return a mask without duplicates: operations with equal stream, times, name and correlation."""
    same_times = np.flatnonzero((np.diff(gpu["start"]) == 0) & (np.diff(gpu["dur"]) == 0) & (gpu["dur"][1:] > 0)) + 1
    kept_rows = np.ones(len(gpu["start"]), bool)
    if not len(same_times):
        return kept_rows
    seen_keys: set[tuple[Any, ...]] = set()
    keys = [gpu[name] for name in ("start", "dur", "correlation", "name_id", "stream", "device", "kind")]
    for index in np.union1d(same_times, same_times - 1):
        key = tuple(values[index] for values in keys)
        kept_rows[index] = gpu["correlation"][index] == NULL or key not in seen_keys
        seen_keys.add(key)
    return kept_rows


def _by_external_id(externals: I64, carriers: I64, queries: I64) -> I64:
    """Return the operator of each External id in ``queries``, else -1; ``externals`` are sorted."""
    if not len(externals):
        return np.full(len(queries), -1, np.int64)
    position = np.minimum(np.searchsorted(externals, queries), len(externals) - 1)
    return np.where((externals[position] == queries) & (queries != NULL), carriers[position], -1)


def _write_names(trace: TraceTables, writer: Writer) -> None:
    writer.insert(
        "names", {"name_id": np.arange(len(trace.ids["names"])), "name": pa.array(list(trace.ids["names"]), pa.string())}
    )
    keys = list(trace.ids["threads"])
    columns = {
        "thread_id": np.arange(len(keys)),
        "pid": [pid for pid, _ in keys],
        "tid": [tid for _, tid in keys],
        "name": [trace.thread_names.get(key) for key in keys],
        "process_name": [trace.process_names.get(pid) for pid, _ in keys],
    }
    writer.insert("threads", columns)
    meanings = list(trace.ids["signatures"])
    parts = ("input_dims", "input_types", "input_strides", "concrete_inputs")
    columns = {name: pa.array([m[i] for m in meanings], pa.string()) for i, name in enumerate(parts)}
    writer.insert("signatures", {"signature_id": np.arange(len(meanings)), **columns})


def _is_among(values: I64, ordered: I64) -> NDArray[np.bool_]:
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)] == values


def _distinct(values: I64) -> I64:
    ordered = np.sort(values)  # Sorting is several times faster than np.unique, which hashes.
    return ordered[np.insert(np.diff(ordered) != 0, 0, True)] if len(ordered) else ordered


def _select(rows: Columns, *names: str) -> Columns:
    return {name: rows[name] for name in names}


def _ids(first: int, count: int) -> I64:
    return np.arange(first, first + count)


def _null_if_negative(values: I64) -> I64:
    return np.where(values < 0, NULL, values)
