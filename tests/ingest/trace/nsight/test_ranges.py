"""Tests of NVTX ranges and library calls in Nsight Systems exports."""

from __future__ import annotations

import duckdb
import pytest

from sawtooth.analysis.derive.events import load_events
from sawtooth.analysis.derive.steps.host import find_host_steps
from sawtooth.ingest.recording import ingest_file
from tests.support import nsight_export as export

KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"


def test_ranges_are_nested_with_the_times_of_the_table(ask):
    ranges, notes = ask(
        export.tables(),
        "SELECT kind, name, depth, dur_ns FROM cpu_ops JOIN names USING (name_id) ORDER BY cpu_op_id LIMIT 2",
        "SELECT key, count FROM diagnostics WHERE severity = 'data_loss' OR key = 'not_ranges'",
    )
    assert ranges == [("annotation", "step 0", 0, export.STEP_NS), ("annotation", "forward", 1, 899_990)]
    assert notes == [("not_ranges", 4)]


def test_operators_of_emit_nvtx_are_operators_with_shapes(ask):
    export_tables = export.tables()
    texts = (
        "aten::mm, seq = 3, op_id = 7, sizes = [[8, 4], [4, 2]]",
        "MmBackward0, seq = 3, op_id = 9",
        "my phase, op_id = 11",
    )
    for i, text in enumerate(texts):
        start = 100 + 10 * i
        export_tables[NVTX].append(
            {"start": start, "end": start + 5, "eventType": 59, "text": text, "globalTid": export.process(1) + 1, "domainId": 0}
        )
    operators, shapes = ask(
        export_tables,
        "SELECT kind, name, sequence_number, input_dims FROM cpu_ops JOIN names USING (name_id) LEFT JOIN signatures USING (signature_id) WHERE dur_ns = 5 ORDER BY cpu_op_id",
        "SELECT record_shapes FROM recording",
    )
    assert operators == [
        ("op", "aten::mm", 3, "[[8,4],[4,2]]"),
        ("op", "MmBackward0", 3, None),
        ("annotation", "my phase", None, None),
    ]
    assert shapes == [(True,)]


def test_library_ranges_are_operators_and_others_are_annotations(ask):
    export_tables = export.tables()
    thread = export.process(export.PID) + export.PID
    for domain, title in ((1, "NCCL"), (2, "mine")):
        export_tables[NVTX] += [
            {"start": 1, "end": None, "eventType": 75, "text": title, "globalTid": thread, "domainId": domain},
            {"start": 5, "end": 7, "eventType": 60, "text": f"in {title}", "globalTid": thread, "domainId": domain},
        ]
    (rows,) = ask(export_tables, "SELECT name, kind, extra FROM cpu_ops JOIN names USING (name_id) WHERE dur_ns = 2 ORDER BY 1")
    assert rows == [("in NCCL", "op", '{"NVTX domain": "NCCL"}'), ("in mine", "annotation", '{"NVTX domain": "mine"}')]


def test_calls_of_mpi_are_library_calls(ask):
    export_tables = export.tables()
    export_tables["StringIds"].append({"id": 50, "value": "MPI_Allreduce"})
    call = {"textId": 50, "globalTid": export.process(export.PID) + export.PID, "commHandle": 1}
    export_tables["MPI_COLLECTIVES_EVENTS"] = [{"start": 5, "end": 7, "size": 64, **call}]
    export_tables["MPI_P2P_EVENTS"] = [{"start": 9, "end": 11, "remoteRank": 1, **call}]
    (rows,) = ask(
        export_tables, "SELECT name, kind, count(*) FROM cpu_ops JOIN names USING (name_id) WHERE dur_ns = 2 GROUP BY ALL"
    )
    assert rows == [("MPI_Allreduce", "op", 2)]


@pytest.mark.parametrize("pids", [(1,), (1, 2)])
def test_numbered_ranges_of_one_process_are_steps(tmp_path, folder, pids):
    export_tables = export.tables(pids, devices=range(len(pids)))
    ref = ingest_file(export.write(tmp_path / "export.sqlite", export_tables), folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        steps = find_host_steps(load_events(con))
    assert steps.names == [f"step {i}" for i in range(export.STEPS)]
    assert steps.ends.tolist() == [(i + 1) * export.STEP_NS for i in range(export.STEPS)]


def test_waits_in_the_operating_system_are_stored_if_useful(ask):
    export_tables = export.tables()
    main, other = export.process(export.PID) + export.PID, export.process(export.PID) + 1
    export_tables["StringIds"].append({"id": 50, "value": "read"})
    export_tables["OSRT_API"] = [
        {"start": 930_000, "end": 990_000, "nameId": 50, "globalTid": main},
        {"start": 995_000, "end": 999_000, "nameId": 50, "globalTid": main},  # 4 µs
        {"start": 0, "end": 4_000_000, "nameId": 50, "globalTid": other},  # The other thread does nothing else.
    ]
    (rows,) = ask(export_tables, "SELECT name, dur_ns FROM python_calls JOIN names USING (name_id)")
    assert rows == [("read (operating system)", 60_000)]


def test_payloads_of_ranges_are_stored_with_them(ask):
    export_tables = export.tables()
    common = {"eventType": 59, "globalTid": export.process(export.PID) + export.PID, "domainId": 0}
    export_tables[NVTX] += [
        {"start": 1, "end": 3, "text": "epoch", "int64Value": 7, **common},
        {"start": 1, "end": 3, "text": "batch", "jsonText": '{"size": 8}', **common},
    ]
    (rows,) = ask(export_tables, "SELECT name, extra FROM cpu_ops JOIN names USING (name_id) WHERE dur_ns = 2 ORDER BY 1")
    assert rows == [("batch", '{"NVTX payload": "{\\"size\\": 8}"}'), ("epoch", '{"NVTX payload": "7"}')]
