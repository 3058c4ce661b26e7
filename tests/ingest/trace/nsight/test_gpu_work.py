"""Tests of GPU work in exports of several versions of Nsight Systems."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing

import duckdb
import pytest

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support import nsight_export as export
from tests.support.paths import SHARED

KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"


def test_kernels_copies_and_calls_are_linked(ask):
    gpu, calls, threads, recording = ask(
        export.tables(),
        "SELECT kind, name, sum(dur_ns)::BIGINT, count(call_id), count(cpu_op_id) FROM gpu_ops JOIN names USING (name_id) GROUP BY 1, 2 ORDER BY 1",
        "SELECT name, sum(gpu_ops)::INT FROM runtime_calls JOIN names USING (name_id) GROUP BY 1 ORDER BY 1",
        "SELECT pid, tid, name FROM threads",
        "SELECT vendor, clock, first_ns, profiler_version, contains(metadata, 'somebody') FROM recording",
    )
    assert gpu == [
        ("kernel", export.TEXTS[1], 4 * sum(export.KERNEL_NS), 8, 8),
        ("memcpy", "Memcpy HtoD (Pageable -> Device)", 4 * export.COPY_NS, 4, 4),
    ]
    assert calls == [("cudaLaunchKernel", 8), ("cudaMemcpyAsync", 4), ("cudaStreamSynchronize", 0)]
    assert threads == [("4242", "4242", "pt_main_thread")]
    assert recording == [("nvidia", "unix", export.EPOCH_NS, "Nsight Systems 2024.1", False)]


def test_a_call_with_a_versioned_duplicate_counts_once(ask):
    made = export.tables()
    launches = [row for row in made[RUNTIME] if row["nameId"] != 7]
    made["StringIds"] += [{"id": 90 + key, "value": export.TEXTS[key].rpartition("_v")[0]} for key in (3, 4)]
    inner = [row | {"start": row["start"] + 1, "end": row["end"] - 1, "nameId": 90 + row["nameId"]} for row in launches]
    made[RUNTIME] = [row for pair in zip(launches, inner, strict=True) for row in pair]
    calls, repeated = ask(
        made,
        "SELECT count(*), sum(gpu_ops)::INT FROM runtime_calls",
        "SELECT count(*) FROM diagnostics WHERE key = 'correlation_repeated'",
    )
    assert calls == [(12, 12)] and repeated == [(0,)]


def test_details_of_kernels_devices_and_synchronizations(ask):
    kernel, device, syncs = ask(
        export.tables(),
        "SELECT DISTINCT grid_x, block_x, registers_per_thread, shared_memory_bytes FROM gpu_ops WHERE kind = 'kernel'",
        "SELECT device, name, memory_bytes, sms, max_threads_per_sm, compute_major FROM devices",
        "SELECT kind, count(*) FROM syncs GROUP BY 1",
    )
    assert kernel == [(80, 256, 32, 1040)]
    assert device == [(0, "Tesla T4", 15 << 30, 40, 1024, None)]
    assert syncs == [
        ("Stream Sync", 4)
    ]  # The number of this kind depends on the version, so the kind comes from the name of the call.


def test_processes_with_equal_numbers_stay_separate(ask):
    made = export.tables((1, 2), devices=(0, 0))
    made["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 5, "cudaId": 0, "pid": 1}, {"gpuId": 6, "cudaId": 0, "pid": 2}]
    per_gpu, wrong = ask(
        made,
        "SELECT device, count(*), count(call_id) FROM gpu_ops GROUP BY 1 ORDER BY 1",
        "SELECT count(*) FROM gpu_ops g JOIN runtime_calls c USING (call_id) JOIN threads t ON t.thread_id = c.thread_id WHERE (g.device = 5) <> (t.pid = '1')",
    )
    assert per_gpu == [(5, 12, 12), (6, 12, 12)]
    assert wrong == [(0,)]


def test_streams_of_two_processes_on_one_gpu_do_not_mix(ask):
    (streams,) = ask(export.tables((1, 2)), "SELECT device, stream, count(*) FROM gpu_ops GROUP BY 1, 2 ORDER BY 2")
    assert [(device, count) for device, _, count in streams] == [(0, 12), (0, 12)]


def test_a_graph_traced_as_a_whole_is_busy_time(ask):
    made = export.tables()
    graph = {
        "deviceId": 0,
        "globalPid": export.process(export.PID),
        "contextId": 1,
        "streamId": 7,
        "correlationId": 999,
        "graphId": 3,
    }
    made["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"] = [{"start": 950_000, "end": 990_000, **graph}]
    rows, notes = ask(
        made,
        "SELECT kind, dur_ns FROM gpu_ops JOIN names USING (name_id) WHERE name LIKE 'CUDA graph 3%'",
        "SELECT count FROM diagnostics WHERE key = 'graphs_whole'",
    )
    assert (rows, notes) == ([("kernel", 40_000)], [(1,)])


def test_a_compressed_export_gives_the_same_recording(tmp_path, folder):
    plain = export.write(tmp_path / "a.sqlite", export.tables())
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    identifier = ingest_file(packed, folder).id
    assert ingest_file(plain, DataFolder(tmp_path / "other").create()).id == identifier


def test_an_older_version_without_most_columns_and_tables(ask):
    made = {name: rows for name, rows in export.tables().items() if name in ("StringIds", KERNEL)}
    made[KERNEL] = [{key: row[key] for key in ("start", "end", "deviceId", "streamId", "shortName")} for row in made[KERNEL]]
    rows, notes = ask(
        made,
        "SELECT DISTINCT name, call_id, grid_x FROM gpu_ops JOIN names USING (name_id)",
        "SELECT key FROM diagnostics WHERE key IN ('no_host', 'no_operators') ORDER BY 1",
    )
    assert rows == [("gemm_kernel", None, None)]
    assert notes == [("no_host",), ("no_operators",)]


def test_busy_time_and_ranges_equal_sums_of_the_tables(tmp_path, folder):
    path = tmp_path / "small.sqlite"
    export.write(path, export.tables(pids=(100, 200)))
    ref = ingest_file(path, folder)
    with (
        duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as ours,
        closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as theirs,
    ):
        work = theirs.execute(
            f"SELECT start, end FROM {KERNEL} UNION ALL SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY 1"
        ).fetchall()
        here = ours.execute("SELECT start_ns, start_ns + dur_ns FROM gpu_ops ORDER BY 1").fetchall()
        assert covered(here) == covered(work) > 0
        ranges = "SELECT count(*), sum(end - start) FROM NVTX_EVENTS WHERE end IS NOT NULL"
        assert ours.execute("SELECT count(*), sum(dur_ns)::BIGINT FROM cpu_ops").fetchall() == theirs.execute(ranges).fetchall()


def covered(spans):
    """Return the time that at least one of the spans covers."""
    total, until = 0, None
    for start, end in sorted(spans):
        begin = start if until is None else max(start, until)
        total += max(end - begin, 0)
        until = end if until is None else max(until, end)
    return total


@pytest.mark.parametrize("path", sorted((SHARED / "formats").glob("nsys*.sqlite")) if SHARED else [], ids=lambda p: p.stem)
def test_sums_equal_those_of_the_export(folder, path):
    ref = ingest_file(path, folder)
    with (
        duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as ours,
        closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as theirs,
    ):
        tables = {name for (name,) in theirs.execute("SELECT name FROM sqlite_master")}
        for kind, table in (
            ("kernel", KERNEL),
            ("memcpy", "CUPTI_ACTIVITY_KIND_MEMCPY"),
            ("memset", "CUPTI_ACTIVITY_KIND_MEMSET"),
        ):
            here = "SELECT device, sum(dur_ns)::BIGINT FROM gpu_ops JOIN names USING (name_id) WHERE kind = ? AND name NOT LIKE 'CUDA graph%' GROUP BY 1 ORDER BY 1"
            there = f"SELECT deviceId, sum(end - start) FROM {table} GROUP BY 1 ORDER BY 1"
            assert ours.execute(here, [kind]).fetchall() == (theirs.execute(there).fetchall() if table in tables else [])
        if NVTX in tables:
            there = f"SELECT count(*), sum(end - start) FROM {NVTX} WHERE eventType IN (59, 60) AND end IS NOT NULL"
            assert (
                ours.execute("SELECT count(*), sum(dur_ns)::BIGINT FROM cpu_ops").fetchall() == theirs.execute(there).fetchall()
            )
