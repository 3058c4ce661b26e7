"""Make files with impossible values.

They are intact files in which some numbers, texts and nested values are replaced.
Byte mutations (``tests.fuzz.ingest``) mostly break the syntax. These files stay valid JSON, so that the
values reach the analysis, the reports and the pages.
"""

from __future__ import annotations

import copy
import gzip
import json
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sawtooth.ingest.capture.packing import write_archive
from tests.fuzz import summaries
from tests.support import nsight_export, sound_trace
from tests.support.bulk_synchronous import Planted, job
from tests.support.paths import GRAPH_BREAKS

# Entries of a torch.compile log that the product reads.
LOG_ENTRIES = (b"compilation_metrics", b"dynamo_graph_break_reason", b"recompile_reasons")
MARKUP = "<img src=x onerror=alert(1)>"
NUMBERS: list[Any] = [
    0, -0.0, 1, -1, 0.5, 1e-9, 5e-324, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**40,
    1e15, 1e18, 1e30, 1e308, -1e308, float("nan"), float("inf"), float("-inf"), 86_400_000_000, 604_800_000_000, 1_700_000_000_000_000,
]  # fmt: skip
TEXTS: list[Any] = [
    "", " ", "\x00", "\x1b]0;title\x07\x1b[2J", "‮gnp.exe", "\u2066‏", "a\r\nb", "`x`", "```\n# h\n", "| a | b |", "~~~", "<!--", "-->",
    MARKUP, "[x](javascript:alert(1))", "![x](https://evil.test/p.png)", "=HYPERLINK(\"https://evil.test\")", "+1", "-1", "@SUM(1)", "\t=1",
    "%{x}", "{{7*7}}", "${7}", "$x$", ":red[x]", "@somebody #1 www.evil.test https://evil.test", "</script><script>alert(1)</script>", "'; DROP TABLE x",
    "../../etc/passwd", "NaN", "Infinity", "1e999", "1e999999999", "-1e-999999999", "9" * 5000, "0x10", "١٢", "²", "null", "a" * 40_000, "é" * 300, "\ud83d", "nccl" * 30, "ProfilerStep#9999999999999999999999",
]  # fmt: skip
SHAPES: list[Any] = [None, True, False, [], {}, [[]], [None], {"a": {"b": []}}, [[[[[[1]]]]]], [1, "2", None, {}]]
# Fields that kineto, PyTorch, CUPTI and the capture helper add to an event.
ARGUMENTS = [
    "bytes", "device", "stream", "grid", "block", "correlation", "External id", "registers per thread", "shared memory", "context", "queued",
    "est. achieved occupancy %", "warps per SM", "blocks per SM", "Input Dims", "Input type", "Input Strides", "Concrete Inputs", "Sequence number",
    "Fwd thread id", "Total Allocated", "Total Reserved", "Bytes", "Addr", "Device Id", "Device Type", "Collective name", "In msg nelems",
    "Out msg nelems", "Group size", "dtype", "Process Group Name", "Process Group Ranks", "Process Group Description", "Rank", "Seq", "Src Rank",
    "Dst Rank", "graph id", "graph node id", "Python id", "Python parent id", "Python module id", "Call stack", "memory bandwidth (GB/s)", "cbid", "Ev Idx",
    "stream_wait_on_event", "cuda_sync_kind", "wait_on_stream", "wait_on_cuda_event_record_corr_id", "Module Hierarchy", "flops",
]  # fmt: skip
NAMES = [
    "nccl:all_reduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "aten::mm", "aten::_scaled_mm", "aten::convolution_backward", "aten::item",
    "cudaStreamSynchronize", "cudaMalloc", "Optimizer.step#Adam.step", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "[memory]",
    "aten::_scaled_dot_product_flash_attention", "CompiledFunctionBackward", "cudaGraphLaunch", "Torch-Compiled Region: 0/0", "ProfilerStep#1",
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "Memset (Device)", "Memcpy DtoH (Device -> Pageable)", "nn.Module: Linear_0",
]  # fmt: skip
CATEGORIES = [
    "kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "user_annotation", "gpu_user_annotation", "cuda_runtime", "cuda_driver", "overhead",
    "python_function", "cpu_instant_event", "cuda_sync", "ac2g", "fwdbwd", "Trace", "cuda_profiler_range",
]  # fmt: skip
TOP_LEVEL = {
    "baseTimeNanoseconds": NUMBERS, "deviceProperties": SHAPES, "distributedInfo": SHAPES, "schemaVersion": NUMBERS, "host_name": TEXTS,
    "trace_id": TEXTS, "traceName": TEXTS, "torch_version": TEXTS, "displayTimeUnit": TEXTS, "record_shapes": NUMBERS, "with_flops": SHAPES,
}  # fmt: skip
DEVICE_KEYS = ["id", "name", "totalGlobalMem", "computeMajor", "computeMinor", "numSms", "warpSize", "maxThreadsPerMultiprocessor", "regsPerMultiprocessor"]  # fmt: skip
JOB_KEYS = ["rank", "world_size", "backend", "nccl_version", "pg_config", "pg_count"]
SAMPLE = {
    "gpu_util": 50, "mem_used": 5e9, "power_w": 300.0, "sm_mhz": 1980, "mem_mhz": 2600, "temp": 60, "throttle": 4, "tensor_activity": 0.2, "sm_activity": 0.5,
}  # fmt: skip

Files = list[tuple[str, bytes]]


def odd_value(rng: random.Random) -> Any:
    """Return a value that no field of a recording should have."""
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, NUMBERS, TEXTS, SHAPES))))


def encoded(value: Any) -> bytes:
    """Return JSON, with NaN and Infinity as Python writes them."""
    return json.dumps(value).encode()


def odd_trace(rng: random.Random) -> Files:
    """Return an intact trace with a few odd values."""
    events = sound_trace.sound_events(rng.choice((1, 2, 6, 12)))
    document = sound_trace.sound(events)
    document["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150e9, "computeMajor": 9, "numSms": 132}]
    for _ in range(rng.choice((1, 2, 4, 30))):
        _corrupt(document, rng)
    return [("trace.json", encoded(document))]


def _corrupt(document: dict[str, Any], rng: random.Random) -> None:
    events = document["traceEvents"]
    event = rng.choice(events)
    match rng.randrange(9):
        case 0 | 1:
            event[rng.choice(("ts", "dur", "pid", "tid", "ph", "cat", "name", "id"))] = odd_value(rng)
        case 2 | 3:
            event.setdefault("args", {})[rng.choice(ARGUMENTS)] = odd_value(rng)
        case 4:
            key = rng.choice(list(TOP_LEVEL))
            document[key] = rng.choice(TOP_LEVEL[key]) if rng.random() < 0.7 else odd_value(rng)
        case 5:
            device = {"id": 0, "name": "NVIDIA H200", rng.choice(DEVICE_KEYS): odd_value(rng)}
            document["deviceProperties"] = [device] * rng.choice((1, 1, 3))
        case 6:
            document["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 2, rng.choice(JOB_KEYS): odd_value(rng)}
        case 7:
            more = copy.deepcopy(event)
            more |= {"name": rng.choice(NAMES), "cat": rng.choice(CATEGORIES)}
            if isinstance(more.get("ts"), float):
                more["ts"] += rng.choice((-1e12, -2000.0, -1.0, 0.0, 0.001, 3.0, 1e5, 1e12))
            events.insert(rng.randrange(len(events)), more)
        case 8:
            for other in events:
                if other.get("cat") == event.get("cat"):
                    other.setdefault("args", {})[(key := rng.choice(ARGUMENTS))] = odd_value(rng) if rng.random() < 0.5 else 1


def ranks_of_a_job(rng: random.Random) -> Files:
    """Return the traces of a job, with odd values in some ranks."""
    planted = Planted(loader_us={1: 400.0}, clock_us={0: 0.0, 1: rng.choice((0.0, 70.0, 1e9, -1e15))})
    traces = job(rng.choice((2, 4)), 2, planted, mesh=rng.random() < 0.5)
    documents = [{**trace.top, "traceEvents": trace.events} for trace in traces]
    for _ in range(rng.choice((0, 1, 3, 10))):
        _corrupt(rng.choice(documents), rng)
    return [(f"rank{i}.json", encoded(document)) for i, document in enumerate(documents)]


def telemetry(rng: random.Random) -> Files:
    """Return samples in one of the formats, with some odd values."""
    form = rng.choice((_nvml_lines, _prometheus, _session, _smi))
    return [form(rng)]


def _times(rng: random.Random) -> list[int]:
    step = rng.choice((10**8, 10**8, 10**9, 1, 10**15))
    return [sound_trace.BASE + i * step for i in range(60)]


def _nvml_lines(rng: random.Random) -> tuple[str, bytes]:
    rows: list[Any] = [{"meta": True, "name": "NVIDIA H200", "hz": 10}, *({"t_ns": t, **SAMPLE} for t in _times(rng))]
    for _ in range(rng.choice((1, 3, 20))):
        row = rng.choice(rows)
        row[rng.choice(["t_ns", "gpu", "index", "uuid", "name", "hz", *SAMPLE])] = odd_value(rng)
    return "nvml.jsonl", b"\n".join(map(encoded, rows))


def _prometheus(rng: random.Random) -> tuple[str, bytes]:
    names = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_FB_USED")
    series = [
        {"metric": {"__name__": name, "gpu": "0", "Hostname": "a"}, "values": [[t / 1e9, "50"] for t in _times(rng)]}
        for name in names
    ]
    for _ in range(rng.choice((1, 3, 20))):
        one: Any = rng.choice(series)
        if rng.random() < 0.4:
            one["metric"][rng.choice(("__name__", "gpu", "Hostname", "UUID", "modelName"))] = odd_value(rng)
        else:
            rng.choice(one["values"])[rng.randrange(2)] = odd_value(rng)
    return "prometheus.json", encoded({"status": "success", "data": {"resultType": "matrix", "result": series}})


def _session(rng: random.Random) -> tuple[str, bytes]:
    head = {
        "k": "head",
        "v": 1,
        "session": "s",
        "host": "h",
        "interval_ns": 10**8,
        "columns": ["util_pct", "power_w", "clock_event_mask"],
    }
    head |= {
        "m": 0,
        "w": sound_trace.BASE,
        "devices": [{"device": 0, "name": "NVIDIA H200", "uuid": "GPU-0", "memory_bytes": 1e11}],
    }
    rows: list[Any] = [head]
    rows += [{"k": "tick", "q": i, "m": i * 10**8, "w": sound_trace.BASE + i * 10**8, "g": [[50, 300.0, 4]]} for i in range(60)]
    for _ in range(rng.choice((1, 3, 20))):
        row = rng.choice(rows)
        if row.get("g") and isinstance(row["g"], list) and rng.random() < 0.6:
            row["g"] = [[odd_value(rng), odd_value(rng)]] if rng.random() < 0.8 else odd_value(rng)
        else:
            row[rng.choice([*row, "s", "p"])] = odd_value(rng)
    return "session.jsonl", b"".join(map(_sealed_line, rows))


def _sealed_line(record: dict[str, Any]) -> bytes:
    """Return a line with a valid checksum, as a sampler writes it. Its content may be odd."""
    body = json.dumps(record, separators=(",", ":")).encode()[:-1]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def _smi(rng: random.Random) -> tuple[str, bytes]:
    lines = ["timestamp, index, utilization.gpu [%], power.draw [W], memory.used [MiB]"]
    lines += [f"2026/01/02 03:04:{i:02d}.000, 0, 50 %, 300.00 W, 5000 MiB" for i in range(60)]
    for _ in range(rng.choice((1, 3, 20))):
        cells = lines[(at := rng.randrange(len(lines)))].split(", ")
        cells[rng.randrange(len(cells))] = str(odd_value(rng))
        lines[at] = ", ".join(cells)
    return "smi.csv", "\n".join(lines).encode(errors="replace")


def marks(rng: random.Random) -> Files:
    """Return an intact trace with step marks and some odd values."""
    head = {"k": "marks", "v": 1, "host": "h", "rank": 0}
    rows: list[Any] = [
        head,
        *({"i": i, "w": sound_trace.BASE + i * 10**7, "p": "train", "o": i, "b": 8, "n": 64} for i in range(60)),
    ]
    for _ in range(rng.choice((1, 3, 20))):
        row = rng.choice(rows)
        row[rng.choice(list(row))] = odd_value(rng)
    return [*odd_trace(rng), ("marks.jsonl", b"\n".join(map(encoded, rows)))]


def compile_log(rng: random.Random) -> Files:
    """Return an intact trace with a torch.compile log and some odd values."""
    lines = gzip.decompress((GRAPH_BREAKS / "breaks_1.log.gz").read_bytes()).split(b"\n")
    entries = [i for i, line in enumerate(lines) if b"] {" in line and any(word in line for word in LOG_ENTRIES)]
    for _ in range(rng.choice((1, 3, 20))):
        at = rng.choice(entries)
        head, _, entry = lines[at].partition(b"] ")
        document = json.loads(entry)
        part = rng.choice([document, *(value for value in document.values() if isinstance(value, dict) and value)])
        part[rng.choice(list(part))] = odd_value(rng)
        lines[at] = head + b"] " + encoded(document)
    return [*odd_trace(rng), ("dedicated_log_torch_trace_x.log", b"\n".join(lines))]


def bundle(rng: random.Random, place: Path) -> Files:
    """Return a bundle of an intact run with an odd manifest."""
    recording: dict[str, Any] = {"member": "sources/0001.gz", "source_name": "t.json", "kind": "trace"}
    run: dict[str, Any] = {"name": "r", "recordings": [recording], "facts": {"step_time_ms": 10.0}}
    manifest: dict[str, Any] = {"runs": [run]}
    facts = ("flops_per_step", "parameters", "tokens_per_step", "samples_per_step", "step_time_ms", "peak_tflops", "price_per_gpu_hour", "loader_workers", "loader_sample_ms")  # fmt: skip
    for _ in range(rng.choice((1, 2, 5))):
        match rng.randrange(5):
            case 0 | 1:
                run["facts"] = {**(run["facts"] if isinstance(run["facts"], dict) else {}), rng.choice(facts): odd_value(rng)}
            case 2:
                run[rng.choice(("name", "notes", "tags", "settings", "facts"))] = odd_value(rng)
            case 3:
                recording[rng.choice(("member", "source_name", "kind", "rank", "host", "offset_ns", "interval_ns"))] = (
                    odd_value(rng)
                )
            case 4:
                manifest[rng.choice(("format", "tool_version", "compare", "more"))] = odd_value(rng)
    path, source = place / "bundle.sawtooth", place / "source.gz"
    source.write_bytes(gzip.compress(sound_trace.text(sound_trace.sound(sound_trace.sound_events(6)))))
    write_archive(path, encoded(manifest), {"sources/0001.gz": source})
    return [(path.name, path.read_bytes())]


def nsight(rng: random.Random, place: Path) -> Files:
    """Return an export of Nsight Systems with odd rows."""
    made = nsight_export.tables()
    nsight_export.add_metrics(made)
    for _ in range(rng.choice((1, 3, 20))):
        rows = made[rng.choice([name for name, rows in made.items() if rows])]
        row, value = rng.choice(rows), odd_value(rng)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            value = float(value)
        row[rng.choice(list(row))] = value.encode(errors="replace") if isinstance(value, str) else repr(value) if isinstance(value, list | dict) else value  # fmt: skip
    if rng.random() < 0.3:  # As from an Nsight version that lacks a table or names a column differently.
        table = rng.choice([name for name, rows in made.items() if rows])
        column = rng.choice(list(made[table][0]))
        made[table] = [{("other" if key == column else key): value for key, value in row.items()} for row in made[table]]
        if rng.random() < 0.5:
            del made[table]
    path = place / "nsys.sqlite"
    try:
        nsight_export.write(path, made)
    except Exception:  # SQLite refuses these rows, so another export is made.
        return nsight(rng, place)
    return [(path.name, path.read_bytes())]


def trace_with_telemetry(rng: random.Random) -> Files:
    """Return a trace and telemetry of the same run."""
    return [*odd_trace(rng), *telemetry(rng)]


MAKERS: dict[str, Callable[[random.Random, Path], Files]] = {
    "trace": lambda rng, _: odd_trace(rng),
    "telemetry": lambda rng, _: telemetry(rng),
    "both": lambda rng, _: trace_with_telemetry(rng),
    "ranks": lambda rng, _: ranks_of_a_job(rng),
    "marks": lambda rng, _: marks(rng),
    "compile": lambda rng, _: compile_log(rng),
    "bundle": bundle,
    "nsight": nsight,
    "summaries": lambda rng, _: summaries.files(rng),
}
