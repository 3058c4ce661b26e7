"""Tests of the whole ingest with a small trace whose expected numbers were computed by hand."""

import gzip
import json
from pathlib import Path

import duckdb
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import IngestProgress, ingest_file
from sawtooth.ingest.runs.manifests import attach, delete_run, register_run, register_runs
from sawtooth.ingest.runs.naming import identifying_name, shown_path

BASE = 1_700_000_000_000_000_000

# A step on thread (10, 11) has ProfilerStep > aten::add > aten::empty. A launch inside add starts a kernel 40.5 us later. A graph launch
# starts two kernels. Another kernel has no launch.
EVENTS = [
    {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 10, "tid": 11, "ts": 100.000, "dur": 100.000, "args": {"External id": 1}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 10, "tid": 11, "ts": 110.001, "dur": 20.5, "args": {"External id": 2, "Sequence number": 7, "Input Dims": [[2, 3], []]}},
    {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 10, "tid": 11, "ts": 112.25, "dur": 3, "args": {"External id": 3}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 10, "tid": 11, "ts": 120.0, "dur": 5.125, "args": {"correlation": 50}},
    {"ph": "X", "cat": "kernel", "name": "add_kernel", "pid": 0, "tid": 7, "ts": 160.501, "dur": 2.002, "args": {"correlation": 50, "device": 0, "stream": 7, "grid": [4, 2, 1], "block": [128, 1, 1], "est. achieved occupancy %": 31, "blocks per SM": "inf", "bytes": "12"}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "pid": 10, "tid": 11, "ts": 150.0, "dur": 5.0, "args": {"correlation": 51}},
    {"ph": "X", "cat": "kernel", "name": "graph_kernel", "pid": 0, "tid": 7, "ts": 170, "dur": 1, "args": {"correlation": 51, "device": 0, "stream": 7, "graph id": 3}},
    {"ph": "X", "cat": "kernel", "name": "graph_kernel", "pid": 0, "tid": 7, "ts": 172, "dur": 1, "args": {"correlation": 51, "device": 0, "stream": 7, "graph id": 3}},
    {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 90, "dur": 1, "args": {"correlation": 9, "device": 0, "stream": 7, "bytes": 4096}},
    {"ph": "M", "name": "thread_name", "pid": 10, "tid": 11, "ts": 0, "args": {"name": "main"}},
    {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 50, "pid": 10, "tid": 11, "ts": 120.0},
]  # fmt: skip
TRACE = {
    "schemaVersion": 1,
    "deviceProperties": [
        {"id": 0, "name": "NVIDIA H200", "numSms": 132, "computeMajor": 9, "computeMinor": 0, "totalGlobalMem": 5}
    ],
    "record_shapes": 1,
    "baseTimeNanoseconds": BASE,
    "traceEvents": EVENTS,
    "distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]},
}


def put(tmp_path, content, name="trace.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def rows(folder, ref, sql):
    with duckdb.connect(str(folder.recording_file(ref.id)), read_only=True) as con:
        return con.execute(sql).fetchall()


def test_times_links_and_nesting_are_exact(tmp_path, folder):
    ref = ingest_file(put(tmp_path, TRACE), folder)
    assert (ref.kind, ref.rank, ref.source_name) == ("trace", 1, "trace.json")
    ops = rows(
        folder,
        ref,
        "SELECT cpu_op_id, kind, name, start_ns, dur_ns, parent_id, depth, sequence_number FROM cpu_ops JOIN names USING (name_id) ORDER BY 1",
    )
    assert ops == [
        (0, "annotation", "ProfilerStep#1", BASE + 100_000, 100_000, None, 0, None),
        (1, "op", "aten::add", BASE + 110_001, 20_500, 0, 1, 7),
        (2, "op", "aten::empty", BASE + 112_250, 3_000, 1, 2, None),
    ]  # fmt: skip
    calls = rows(folder, ref, "SELECT call_id, start_ns, dur_ns, correlation, cpu_op_id, gpu_ops FROM runtime_calls ORDER BY 1")
    assert calls == [(0, BASE + 120_000, 5_125, 50, 1, 1), (1, BASE + 150_000, 5_000, 51, 0, 2)]
    gpu = rows(
        folder, ref, "SELECT gpu_op_id, kind, start_ns, dur_ns, call_id, cpu_op_id, bytes, graph_id FROM gpu_ops ORDER BY 1"
    )
    assert gpu == [
        (0, "memcpy", BASE + 90_000, 1_000, None, None, 4096, None),
        (1, "kernel", BASE + 160_501, 2_002, 0, 1, 12, None),
        (2, "kernel", BASE + 170_000, 1_000, 1, 0, None, 3),
        (3, "kernel", BASE + 172_000, 1_000, 1, 0, None, 3),
    ]
    detail = rows(
        folder,
        ref,
        "SELECT grid_x, grid_y, grid_z, block_x, occupancy_pct, blocks_per_sm, device, stream FROM gpu_ops WHERE gpu_op_id = 1",
    )
    assert detail == [(4, 2, 1, 128, 31.0, None, 0, 7)]
    about = rows(
        folder,
        ref,
        "SELECT clock, base_time_ns, first_ns, last_ns, truncated, vendor, world_size, record_shapes, with_stack FROM recording",
    )
    assert about == [("unix", BASE, BASE + 90_000, BASE + 200_000, False, "nvidia", 2, True, False)]
    assert rows(folder, ref, "SELECT name, pid, tid FROM threads") == [("main", "10", "11")]
    assert rows(folder, ref, "SELECT input_dims FROM signatures") == [("[[2,3],[]]",)]


def test_same_bytes_make_the_same_recording_and_keep_one_source(tmp_path, folder):
    text = json.dumps(TRACE).encode()
    first = ingest_file(put(tmp_path, text), folder)
    again = ingest_file(put(tmp_path, gzip.compress(text), "other.json.gz"), folder)
    assert first == again
    assert gzip.decompress(folder.source_file(first.id).read_bytes()) == text
    assert {p.name for p in folder.recordings.iterdir()} == {folder.recording_file(first.id).name}


def test_progress_ends_with_done(tmp_path, folder):
    seen: list[IngestProgress] = []
    ingest_file(put(tmp_path, TRACE), folder, progress=seen.append)
    # 3 operators, 2 calls, 4 GPU operations
    assert seen[-1].stage == "done" and seen[-1].bytes_done == seen[-1].bytes_total > 0 and seen[-1].events == 9


@pytest.mark.parametrize("content", [b"", b"{}", b'{"traceEvents":[]}', b"[]", b"42", b"<html>", b"PK\x03\x04aaaa"])
def test_a_refused_file_leaves_nothing(tmp_path, folder, content):
    with pytest.raises(SourceError) as refusal:
        ingest_file(put(tmp_path, content), folder)
    assert refusal.value.code.startswith("E-") and str(tmp_path) not in str(refusal.value)
    assert not list(folder.recordings.iterdir()) and not list(folder.sources.iterdir())


def test_ranks_are_joined_and_deleted_with_their_telemetry(tmp_path, folder):
    other = json.loads(json.dumps(TRACE))
    other["distributedInfo"]["rank"] = 0
    lines = [
        {"meta": True, "name": "NVIDIA H200"},
        *({"t_ns": BASE + i * 10**8, "gpu_util": i, "gpm_dram_bw": float("nan")} for i in (0, 1, 2, 3, 9)),
    ]
    telemetry = "\n".join(json.dumps(line) for line in lines).encode()
    refs = [
        ingest_file(put(tmp_path, TRACE, "a.json"), folder),
        ingest_file(put(tmp_path, other, "b.json"), folder),
        ingest_file(put(tmp_path, telemetry, "nvml.jsonl"), folder),
    ]
    assert rows(folder, refs[2], "SELECT count(*), count(dram_active_pct), sum(util_pct) FROM samples") == [(5, 0, 15.0)]
    # The periods are 100, 100, 100 and 600 ms. The median is 100, so the last period (more than 300) is a gap.
    assert rows(folder, refs[2], "SELECT start_ns, end_ns FROM sample_gaps") == [(BASE + 3 * 10**8, BASE + 9 * 10**8)]
    (run,) = register_runs(folder, refs, name="job")
    assert [t.rank for t in run.traces] == [0, 1] and len(run.telemetry) == 1
    assert len(register_runs(folder, refs, separate=True)) == 2
    for manifest in folder.manifests():
        delete_run(folder, manifest.id)
    assert not list(folder.runs.iterdir()) and not list(folder.recordings.iterdir()) and not list(folder.sources.iterdir())


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("resnet50-baseline.pt.trace.json.gz", "resnet50-baseline"),
        ("trace-without-reads.json", "trace-without-reads"),
        ("runs/baseline/trace_3.json", "baseline"),
        ("C:\\runs\\baseline\\profile.json.gz", "baseline"),
        ("runs/two-nodes/rank0.trace.json", "two-nodes"),
        ("0.trace.json.gz", None),
        ("/tmp/tmpab12cd34.json", None),
        ("out/pytorch_trace.json", None),
        ("eight-workers/logs/node3_4242.1795404433123456789.pt.trace.json.gz", "eight-workers"),
        ("run_3/marks.jsonl", "run_3"),
        ("job-7/trace-rank1.part", "job-7"),
        ("trace_rank_0.json", None),
        ("/home/carol/trace.json", None),
        ("", None),
    ],
)
def test_names_distinguish_recordings(path, name):
    assert identifying_name(path) == name


def test_trace_with_a_generic_name_is_named_after_its_folder(tmp_path, folder):
    ref = ingest_file(put(tmp_path, {**TRACE, "traceName": "experiments/eight-workers/trace.json"}), folder)
    assert register_run(folder, [ref]).name == "eight-workers, rank 1"
    plain = ingest_file(put(tmp_path, TRACE), folder)
    assert register_run(folder, [plain]).name == "trace, 14 Nov 22:13:20 UTC, rank 1"


@pytest.mark.parametrize(
    ("file", "of_job", "name"),
    [
        ("rank1.json", {}, "trace, 14 Nov 22:13:20 UTC, rank 1"),
        ("two-nodes.json", {"rank": 3, "world_size": 8}, "two-nodes, rank 3"),
        ("two-nodes-rank3.json", {"rank": 3, "world_size": 8}, "two-nodes-rank3"),
        ("alone.json", {"rank": 0, "world_size": 1}, "alone"),
    ],
)
def test_the_name_of_a_run_of_one_rank_has_the_rank(tmp_path, folder, file, of_job, name):
    trace = {key: value for key, value in TRACE.items() if key != "distributedInfo"}
    trace |= {"distributedInfo": {**TRACE["distributedInfo"], **of_job}} if of_job else {}
    run = register_run(folder, [ingest_file(put(tmp_path, trace, file), folder)])
    assert run.name == name
    other = {**TRACE, "distributedInfo": {**TRACE["distributedInfo"], "rank": 0}}
    complete = attach(folder, run.id, [ingest_file(put(tmp_path, other, "rank0.json"), folder)])
    assert complete.name == name.removesuffix(", rank 1").removesuffix(", rank 3")


def test_an_unnamed_run_is_named_after_its_script_and_time(tmp_path, folder):
    frame = {
        "ph": "X",
        "cat": "python_function",
        "name": "src/pretrain.py(7): <module>",
        "pid": 1,
        "tid": 1,
        "ts": 1,
        "dur": 5,
        "args": {"Python id": 1},
    }
    trace = {**TRACE, "traceEvents": [*TRACE["traceEvents"], frame]}
    assert register_run(folder, [ingest_file(put(tmp_path, trace), folder)]).name == "pretrain, 14 Nov 22:13:20 UTC, rank 1"


def test_runs_with_equal_file_names_are_distinguished_by_time(tmp_path, folder):
    first, second = (ingest_file(put(tmp_path, {**TRACE, "more": i}), folder, source_name="baseline.json") for i in range(2))
    assert [register_run(folder, [ref]).name for ref in (first, second, first)] == [
        "baseline, rank 1",
        "baseline, rank 1, 14 Nov 22:13:20 UTC",
        "baseline, rank 1",
    ]


def test_a_file_with_a_generic_name_is_shown_with_its_folder(tmp_path):
    job = tmp_path / "eight-workers"
    assert shown_path(job / "trace.json.gz") == "eight-workers/trace.json.gz"
    assert shown_path(job / "rank_0" / "trace.json", below=job) == "eight-workers/rank_0/trace.json"
    assert shown_path(job / "vit.json") == shown_path(job / "vit.json", below=job) == "vit.json"
    assert shown_path(Path("/home/carol/trace.json")) == "trace.json"


@pytest.mark.parametrize("home", ["/home/carol", "/root", "/Users/carol", r"C:\Users\carol"])
def test_a_run_is_not_named_after_a_user(tmp_path, folder, home):
    ref = ingest_file(put(tmp_path, {**TRACE, "traceName": f"{home}/trace.json"}), folder)
    assert register_run(folder, [ref]).name == "trace, 14 Nov 22:13:20 UTC, rank 1"
