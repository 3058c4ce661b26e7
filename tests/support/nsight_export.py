"""Small hand-built exports of Nsight Systems: four steps of two kernels and a copy, on 1 or 2 GPUs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

EPOCH_NS = 1_750_000_000_000_000_000  # Unix time of time 0.
STEPS = 4
STEP_NS = 1_000_000
PID = 4242
KERNEL_NS = (300_000, 100_000)
COPY_NS = 50_000
TEXTS = {
    1: "void gemm_kernel<float>(float*)",
    2: "gemm_kernel",
    3: "cudaLaunchKernel_v7000",
    4: "cudaMemcpyAsync_v3020",
    5: "pt_main_thread",
}
TEXTS |= {6: "forward", 7: "cudaStreamSynchronize_v3020"}

Row = dict[str, Any]


def process(pid: int) -> int:
    """Return the globalPid of ``pid``.

    The globalTid of a thread is this number plus its tid.
    """
    return 1 << 48 | pid << 24


def tables(pids: Iterable[int] = (PID,), *, devices: Iterable[int] | None = None) -> dict[str, list[Row]]:
    """Return the rows of an export in which each process runs the same steps.

    The steps run on device 0, or on those of ``devices``.
    """
    made: dict[str, list[Row]] = {
        "StringIds": [{"id": key, "value": value} for key, value in TEXTS.items()],
        "META_DATA_EXPORT": [
            {"name": "EXPORT_PRODUCT_VERSION", "value": "2024.1"},
            {"name": "EXPORT_USER", "value": "somebody"},
        ],
        "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": EPOCH_NS}],
        "TARGET_INFO_GPU": [
            {"id": 0, "name": "Tesla T4", "totalMemory": 15 << 30, "smCount": 40, "threadsPerWarp": 32, "maxWarpsPerSm": 32}
        ],
        **{name: [] for name in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME")},
        **{name: [] for name in ("NVTX_EVENTS", "ThreadNames", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")},
    }
    for pid, device in zip(pids, devices or [0] * 99, strict=False):
        made["ThreadNames"].append({"globalTid": process(pid) + pid, "nameId": 5})
        for step in range(STEPS):
            _add_step(made, pid, device, step)
    return made


def _add_step(made: dict[str, list[Row]], pid: int, device: int, step: int) -> None:
    at, number, thread = step * STEP_NS, 10 * step + 1, process(pid) + pid
    common = {"deviceId": device, "globalPid": process(pid), "contextId": 1, "streamId": 7}
    made["NVTX_EVENTS"] += [
        {"start": at, "end": at + STEP_NS, "eventType": 59, "text": f"step {step}", "globalTid": thread, "domainId": 0},
        {"start": at + 10, "end": at + 900_000, "eventType": 59, "textId": 6, "globalTid": thread, "domainId": 0},
        {"start": at + 20, "end": None, "eventType": 34, "text": "a mark", "globalTid": thread, "domainId": 0},
    ]
    start = at + 20_000
    for i, dur in enumerate(KERNEL_NS):
        made["CUPTI_ACTIVITY_KIND_RUNTIME"].append(
            {
                "start": at + 1000 * (i + 1),
                "end": at + 1000 * (i + 1) + 500,
                "globalTid": thread,
                "correlationId": number + i,
                "nameId": 3,
            }
        )
        made["CUPTI_ACTIVITY_KIND_KERNEL"].append(
            {"start": start, "end": start + dur, **common, "correlationId": number + i, "demangledName": 1, "shortName": 2, "gridX": 80,
             "gridY": 1, "gridZ": 1, "blockX": 256, "blockY": 1, "blockZ": 1, "registersPerThread": 32, "staticSharedMemory": 16,
             "dynamicSharedMemory": 1024}
        )  # fmt: skip
        start += dur
    made["CUPTI_ACTIVITY_KIND_RUNTIME"] += [
        {"start": at + 5000, "end": at + 5500, "globalTid": thread, "correlationId": number + 2, "nameId": 4},
        {"start": at + 6000, "end": start + COPY_NS, "globalTid": thread, "correlationId": number + 3, "nameId": 7},
    ]
    made["CUPTI_ACTIVITY_KIND_MEMCPY"].append(
        {
            "start": start,
            "end": start + COPY_NS,
            **common,
            "correlationId": number + 2,
            "bytes": 4096,
            "copyKind": 1,
            "srcKind": 0,
            "dstKind": 2,
        }
    )
    made["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"].append(
        {"start": at + 6000, "end": start + COPY_NS, **common, "correlationId": number + 3, "syncType": 2}
    )


def add_metrics(made: dict[str, list[Row]], gpus: Iterable[int] = (0,), *, every_ns: int = 100_000) -> None:
    """Add samples of the GPU's counters over the steps, as ``--gpu-metrics-devices`` records them.

    The GPU is busy in the first half of each step.
    """
    names = {1: "GPC Clock Frequency [MHz]", 2: "GR Active [Throughput %]", 3: "SMs Active [Throughput %]"}
    names |= {
        4: "DRAM Read Bandwidth [Throughput %]",
        5: "DRAM Write Bandwidth [Throughput %]",
        6: "Compute Warps in Flight [Avg]",
    }
    kinds = {gpu: 0x01_00_00_00_00_00_00_00 | gpu for gpu in gpus}
    made["TARGET_INFO_GPU_METRICS"] = [
        {"typeId": kind, "sourceId": 1, "typeName": "NVIDIA GPU metrics", "metricId": metric, "metricName": name}
        for kind in kinds.values()
        for metric, name in names.items()
    ]
    made["GPU_METRICS"] = []
    for at in range(every_ns, STEPS * STEP_NS + 1, every_ns):
        busy = (at - 1) % STEP_NS < STEP_NS // 2
        values = {1: 1_980_000_000, 2: 100 * busy, 3: 90 * busy, 4: 30 * busy, 5: 10 * busy, 6: 40}
        made["GPU_METRICS"] += [
            {"timestamp": at, "typeId": kind, "metricId": metric, "value": value}
            for kind in kinds.values()
            for metric, value in values.items()
        ]


def write(path: Path, made: dict[str, list[Row]], statements: Iterable[str] = ()) -> Path:
    """Write ``made`` as an export.

    Each table has the columns that its rows name. ``statements`` are executed at the end.
    """
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        for table, rows in made.items():
            columns = list(dict.fromkeys(name for row in rows for name in row)) or ["start", "end"]
            kinds = [
                f'"{name}" INTEGER PRIMARY KEY' if name == "id" and table == "StringIds" else f'"{name}"' for name in columns
            ]
            connection.execute(f'CREATE TABLE "{table}" ({", ".join(kinds)})')
            marks = ", ".join("?" for _ in columns)
            connection.executemany(
                f'INSERT INTO "{table}" VALUES ({marks})', [[row.get(name) for name in columns] for row in rows]
            )
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path
