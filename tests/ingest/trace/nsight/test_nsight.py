"""Tests of Nsight Systems exports: every version gives the same facts as any other trace.

A damaged or hostile export gives one sentence.
"""

from __future__ import annotations

import gzip
import sqlite3
import subprocess
import sys
from contextlib import closing

import duckdb
import pytest

from sawtooth.analysis.derive.events import load_events
from sawtooth.analysis.derive.steps.host import find_host_steps
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.trace.nsight import database, samples
from tests.support import nsight_export as export
from tests.support.paths import SHARED

KERNEL, NVTX, RUNTIME = "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"


@pytest.fixture
def folder(tmp_path):
    return DataFolder(tmp_path / "data").create()


@pytest.fixture
def ask(tmp_path, folder):
    """Write an export, ingest it, and answer SQL over its recording."""

    def answer(made, *queries, statements=()):
        ref = ingest_file(export.write(tmp_path / "given.sqlite", made, statements), folder)
        with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
            return [con.execute(query).fetchall() for query in queries]

    return answer


def refusal(tmp_path, folder, made=None, content=None, statements=(), name="given.sqlite"):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    else:
        export.write(path, made, statements)
    with pytest.raises(SourceError) as refused:
        ingest_file(path, folder)
    assert not list(folder.recordings.iterdir()) and not list(folder.sources.iterdir())
    sentence = str(refused.value)
    assert len(sentence) < 300 and str(tmp_path) not in sentence
    return refused.value.code, sentence


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
    assert syncs == [("Stream Sync", 4)]  # numbered 2 in some versions and 3 in others; the call decides


def test_ranges_are_nested_with_the_times_of_the_table(ask):
    ranges, notes = ask(
        export.tables(),
        "SELECT kind, name, depth, dur_ns FROM cpu_ops JOIN names USING (name_id) ORDER BY cpu_op_id LIMIT 2",
        "SELECT key, count FROM diagnostics WHERE severity = 'data_loss' OR key = 'not_ranges'",
    )
    assert ranges == [("annotation", "step 0", 0, export.STEP_NS), ("annotation", "forward", 1, 899_990)]
    assert notes == [("not_ranges", 4)]


def test_operators_of_emit_nvtx_are_operators_with_shapes(ask):
    made = export.tables()
    texts = (
        "aten::mm, seq = 3, op_id = 7, sizes = [[8, 4], [4, 2]]",
        "MmBackward0, seq = 3, op_id = 9",
        "my phase, op_id = 11",
    )
    for i, text in enumerate(texts):
        at = 100 + 10 * i
        made[NVTX].append(
            {"start": at, "end": at + 5, "eventType": 59, "text": text, "globalTid": export.process(1) + 1, "domainId": 0}
        )
    operators, shapes = ask(
        made,
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
    made = export.tables()
    thread = export.process(export.PID) + export.PID
    for domain, title in ((1, "NCCL"), (2, "mine")):
        made[NVTX] += [
            {"start": 1, "end": None, "eventType": 75, "text": title, "globalTid": thread, "domainId": domain},
            {"start": 5, "end": 7, "eventType": 60, "text": f"in {title}", "globalTid": thread, "domainId": domain},
        ]
    (rows,) = ask(made, "SELECT name, kind, extra FROM cpu_ops JOIN names USING (name_id) WHERE dur_ns = 2 ORDER BY 1")
    assert rows == [("in NCCL", "op", '{"NVTX domain": "NCCL"}'), ("in mine", "annotation", '{"NVTX domain": "mine"}')]


def test_calls_of_mpi_are_library_calls(ask):
    made = export.tables()
    made["StringIds"].append({"id": 50, "value": "MPI_Allreduce"})
    call = {"textId": 50, "globalTid": export.process(export.PID) + export.PID, "commHandle": 1}
    made["MPI_COLLECTIVES_EVENTS"] = [{"start": 5, "end": 7, "size": 64, **call}]
    made["MPI_P2P_EVENTS"] = [{"start": 9, "end": 11, "remoteRank": 1, **call}]
    (rows,) = ask(made, "SELECT name, kind, count(*) FROM cpu_ops JOIN names USING (name_id) WHERE dur_ns = 2 GROUP BY ALL")
    assert rows == [("MPI_Allreduce", "op", 2)]


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


@pytest.mark.parametrize("odd", ["<b>x", b"\x00\xff", 2**63 - 1, 1.5e300, None])
@pytest.mark.parametrize("key", ["gpuId", "cudaId", "pid"])
def test_only_invalid_gpu_values_are_lost(ask, key, odd):
    made = export.tables()
    made["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 0, "cudaId": 0, "pid": export.PID, key: odd}]
    (rows,) = ask(made, "SELECT DISTINCT device FROM gpu_ops")
    assert rows == [(0,)]


def test_streams_of_two_processes_on_one_gpu_do_not_mix(ask):
    (streams,) = ask(export.tables((1, 2)), "SELECT device, stream, count(*) FROM gpu_ops GROUP BY 1, 2 ORDER BY 2")
    assert [(device, count) for device, _, count in streams] == [(0, 12), (0, 12)]


@pytest.mark.parametrize("pids", [(1,), (1, 2)])
def test_numbered_ranges_of_one_process_are_steps(tmp_path, folder, pids):
    made = export.tables(pids, devices=range(len(pids)))
    ref = ingest_file(export.write(tmp_path / "given.sqlite", made), folder)
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        steps = find_host_steps(load_events(con))
    assert steps.names == [f"step {i}" for i in range(export.STEPS)]
    assert steps.ends.tolist() == [(i + 1) * export.STEP_NS for i in range(export.STEPS)]


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


def test_sampled_counters_are_telemetry_on_the_trace_s_clock(tmp_path, folder, ask):
    made = export.tables()
    export.add_metrics(made)
    samples, devices = ask(
        made,
        "SELECT count(*), min(time_ns), avg(gr_active_pct), max(sm_active_pct), max(dram_active_pct), avg(clock_sm_mhz), count(sm_occupancy_pct) FROM samples",
        "SELECT DISTINCT device FROM samples",
    )
    # 4 steps of 1 ms, sampled every 0.1 ms; reads (30 %) and writes (10 %) are one quantity; warps in flight are no percentage here
    assert samples == [(40, export.EPOCH_NS + 100_000, 50.0, 90.0, 40.0, 1980.0, 0)]
    assert devices == [(0,)]
    ref = ingest_file(tmp_path / "given.sqlite", folder)
    assert (ref.kind, ref.samples) == ("trace", True)


def test_memory_is_called_vram_on_gpus_without_hbm(ask):
    made = export.tables()
    export.add_metrics(made)
    for row in made["TARGET_INFO_GPU_METRICS"]:
        row["metricName"] = row["metricName"].replace("DRAM", "VRAM")
    (samples,) = ask(made, "SELECT max(dram_active_pct) FROM samples")
    assert samples == [(40.0,)]


def test_only_gpus_that_the_program_used_are_sampled_devices(ask):
    made = export.tables()
    made["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 5, "cudaId": 0, "pid": export.PID}]
    export.add_metrics(made, gpus=(0, 5))
    (rows,) = ask(made, "SELECT device, count(*) FROM samples GROUP BY 1")
    assert rows == [(0, 40)]


def test_samples_beyond_the_limit_are_left_out_and_reported(ask, monkeypatch):
    monkeypatch.setattr(samples, "MAX_SAMPLES", 100)
    made = export.tables()
    export.add_metrics(made)
    rows, notes, kernels = ask(
        made,
        "SELECT count(*) FROM samples",
        "SELECT severity FROM diagnostics WHERE key = 'samples_many'",
        "SELECT count(*) FROM gpu_ops",
    )
    assert (rows, notes, kernels) == ([(0,)], [("data_loss",)], [(12,)])


@pytest.mark.parametrize("damage", ["no names", "texts", "clock that wrapped"])
def test_only_invalid_counters_are_lost(ask, damage):
    made = export.tables()
    export.add_metrics(made)
    if damage == "no names":
        made.pop("TARGET_INFO_GPU_METRICS")
    for row in made["GPU_METRICS"]:
        if damage == "texts":
            row["value"] = "much"
        if damage == "clock that wrapped" and row["metricId"] == 1:
            row["value"] = 2_500_000_000 - (1 << 32)
    (samples,) = ask(made, "SELECT count(*), max(clock_sm_mhz) FROM samples")
    assert samples == [(40, 2500.0) if damage == "clock that wrapped" else (0, None)]


def test_waits_in_the_operating_system_are_stored_if_useful(ask):
    made = export.tables()
    main, other = export.process(export.PID) + export.PID, export.process(export.PID) + 1
    made["StringIds"].append({"id": 50, "value": "read"})
    made["OSRT_API"] = [
        {"start": 930_000, "end": 990_000, "nameId": 50, "globalTid": main},
        {"start": 995_000, "end": 999_000, "nameId": 50, "globalTid": main},  # 4 µs
        {"start": 0, "end": 4_000_000, "nameId": 50, "globalTid": other},  # a thread that does nothing else
    ]
    (rows,) = ask(made, "SELECT name, dur_ns FROM python_calls JOIN names USING (name_id)")
    assert rows == [("read (operating system)", 60_000)]


def test_payloads_of_ranges_are_stored_with_them(ask):
    made = export.tables()
    common = {"eventType": 59, "globalTid": export.process(export.PID) + export.PID, "domainId": 0}
    made[NVTX] += [
        {"start": 1, "end": 3, "text": "epoch", "int64Value": 7, **common},
        {"start": 1, "end": 3, "text": "batch", "jsonText": '{"size": 8}', **common},
    ]
    (rows,) = ask(made, "SELECT name, extra FROM cpu_ops JOIN names USING (name_id) WHERE dur_ns = 2 ORDER BY 1")
    assert rows == [("batch", '{"NVTX payload": "{\\"size\\": 8}"}'), ("epoch", '{"NVTX payload": "7"}')]


def test_compressed_it_gives_the_same_recording(tmp_path, folder):
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


def test_the_devices_of_early_2021_are_read(ask):
    made = export.tables()
    del made["TARGET_INFO_GPU"]
    made["TARGET_INFO_CUDA_GPU"] = [
        {
            "deviceId": 0,
            "name": "Tesla T4",
            "globalMemorySize": 15 << 30,
            "computeCapabilityMajor": 7,
            "computeCapabilityMinor": 5,
            "numMultiprocessors": 40,
            "numThreadsPerWarp": 32,
            "maxWarpsPerMultiprocessor": 32,
        }
    ]
    (device,) = ask(
        made, "SELECT device, name, memory_bytes, sms, max_threads_per_sm, compute_major, compute_minor FROM devices"
    )
    assert device == [(0, "Tesla T4", 15 << 30, 40, 1024, 7, 5)]


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


def test_only_rows_with_wrong_types_are_lost(ask):
    made = export.tables()
    made[KERNEL][0]["start"] = "soon"
    made[KERNEL][1]["deviceId"] = b"\x00\xff"
    made[KERNEL][2]["demangledName"] = "17"
    made[KERNEL][3]["end"] = 0
    rows, notes = ask(
        made,
        "SELECT count(*) FROM gpu_ops WHERE kind = 'kernel'",
        "SELECT key, count FROM diagnostics WHERE severity = 'data_loss' ORDER BY 1",
    )
    assert rows == [(6,)]
    assert notes == [("time_negative", 1), ("time_open", 1)]


def test_hostile_strings_stay_names(ask):
    made = export.tables()
    made["StringIds"][0]["value"] = b"\xff\xfe'; DROP TABLE names; --\x00<script>"
    made["ThreadNames"][0]["nameId"] = 1
    (rows,) = ask(made, "SELECT DISTINCT name FROM gpu_ops JOIN names USING (name_id) WHERE kind = 'kernel'")
    assert rows[0][0].startswith("\ufffd\ufffd'; DROP TABLE names; --")


def test_views_and_virtual_tables_are_not_read(ask):
    made = export.tables()
    kernels = made.pop(KERNEL)
    made["elsewhere"] = kernels
    (kinds,) = ask(made, "SELECT DISTINCT kind FROM gpu_ops", statements=[f'CREATE VIEW "{KERNEL}" AS SELECT * FROM elsewhere'])
    assert kinds == [("memcpy",)]


@pytest.mark.parametrize("size", [0.3, 0.9])
def test_a_truncated_export_is_reported(tmp_path, folder, size):
    content = export.write(tmp_path / "whole", export.tables()).read_bytes()
    code, sentence = refusal(tmp_path, folder, content=content[: int(len(content) * size)])
    assert code == "E-TRUNC" and "cut off" in sentence and "nsys export" in sentence


def test_damaged_pages_are_reported(tmp_path, folder):
    content = bytearray(export.write(tmp_path / "whole", export.tables()).read_bytes())
    content[4096:] = b"\xee" * (len(content) - 4096)
    code, sentence = refusal(tmp_path, folder, content=bytes(content))
    assert code == "E-JSON" and "damaged" in sentence


def test_another_database_is_not_an_export(tmp_path, folder):
    code, sentence = refusal(tmp_path, folder, {"customers": [{"name": "x"}]})
    assert code == "E-TYPE" and "without the tables of Nsight Systems" in sentence


@pytest.mark.parametrize(("lost", "says"), [("end", "no column end"), (None, "holds no GPU operation")])
def test_missing_tables_are_named(tmp_path, folder, lost, says):
    made = export.tables()
    kept = {"StringIds": made["StringIds"]}
    if lost:
        kept[KERNEL] = [{key: value for key, value in row.items() if key != lost} for row in made[KERNEL]]
    assert says in refusal(tmp_path, folder, kept)[1]


def test_unusable_times_are_reported(tmp_path, folder):
    rows = [{"start": "a", "end": "b", "deviceId": 0}] * 3
    code, sentence = refusal(tmp_path, folder, {"StringIds": [{"id": 1, "value": "x"}], KERNEL: rows})
    assert code == "E-NOEV" and "None of the 3 events" in sentence


def test_a_row_too_large_and_a_file_too_slow_are_refused(tmp_path, folder, monkeypatch):
    made = export.tables()
    monkeypatch.setattr(database, "MAX_VALUE_BYTES", 4096)
    made[NVTX][0]["text"] = "x" * 10_000
    assert refusal(tmp_path, folder, made)[0] == "E-LIMIT"
    monkeypatch.setattr(database, "MAX_BATCH_S", -1.0)
    monkeypatch.setattr(database, "OPCODES_PER_CLOCK_CHECK", 1)
    code, sentence = refusal(tmp_path, folder, export.tables())
    assert code == "E-LIMIT" and "takes longer" in sentence


def test_large_blobs_elsewhere_are_not_touched(ask, monkeypatch):
    monkeypatch.setattr(database, "MAX_VALUE_BYTES", 1 << 16)
    made = export.tables() | {"NVTX_PAYLOADS": [{"data": b"\xaa" * (1 << 20)}]}
    made[NVTX][0]["binaryData"] = "y" * 100
    assert ask(made, "SELECT count(*) FROM gpu_ops") == [[(12,)]]


@pytest.mark.slow
def test_unread_gigabytes_need_no_memory(tmp_path):
    """Ten gigabytes of unread data cost no memory.

    The file is sparse. Its header counts pages for ten gigabytes of blobs, which are hashed but never read.
    """
    path = export.write(tmp_path / "large.sqlite", export.tables() | {"NVTX_PAYLOADS": [{"data": b"\xaa" * (1 << 20)}]})
    page = int.from_bytes(path.read_bytes()[16:18], "big")
    pages = 10 * 10**9 // page
    with path.open("r+b") as file:
        file.seek(28)
        file.write(pages.to_bytes(4, "big"))
        file.truncate(pages * page)
    code = (
        "import sys\nfrom pathlib import Path\nfrom sawtooth.ingest.recording import ingest_file\nfrom sawtooth.ingest.schema import DataFolder\n"
        "ingest_file(Path(sys.argv[1]), DataFolder(Path(sys.argv[2])).create())\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"  # ru_maxrss begins with its parent's
    )
    done = subprocess.run([sys.executable, "-c", code, path, tmp_path / "data"], capture_output=True, text=True, timeout=600)
    path.unlink()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 400_000  # kB; 210 MB on 23 November 2026, in 14 s of a core


@pytest.mark.parametrize("name", ["run.nsys-rep", "run.qdrep", "renamed.bin"])
def test_a_report_is_answered_with_the_command_that_exports_it(tmp_path, folder, name):
    content = b"\x05\x00\x00\x00\x01\x08\x00" + (b"NVIDIA Nsight Systems" if name == "renamed.bin" else b"") + bytes(200)
    code, sentence = refusal(tmp_path, folder, content=content, name=name)
    assert code == "E-TYPE" and "nsys export --type sqlite" in sentence


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
