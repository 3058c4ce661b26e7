"""Tests of which other stream an operation waits for, with few streams and with one stream per kernel."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

from sawtooth.analysis.derive.build import ensure_derived
from sawtooth.analysis.derive.unprofiled.streams import LATE_NS, _ended_last
from sawtooth.analysis.derive.unprofiled.waits import stream_free
from sawtooth.analysis.replay.simulation import DeviceOps
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder

KERNELS, STEPS, SYNCHRONIZED = 2_000, 10, 20  # A wait for its stream follows each 20th kernel.
TIMES_AS_LONG = 4  # Measured: 1.5 to 2.8 on a busy machine, and more than 100 when each late kernel checked every stream.


def _plain(ops: DeviceOps, ready: np.ndarray, launched: np.ndarray) -> list[int]:
    """Return the same as the tested function by a plain search.

    That is the latest end of the operations that were launched earlier on another stream and ended after ``ready`` and
    by the start.
    """
    start, end = ops.fixed_start, ops.fixed_start + ops.dur
    found = []
    for i in range(len(ops)):
        late = launched[i] and start[i] > ready[i] + LATE_NS
        of_others = [j for j in range(i) if ops.stream[j] != ops.stream[i] and ready[i] < end[j] <= start[i]] if late else []
        found.append(max(of_others, key=lambda j: (end[j], -ops.stream[j], j), default=-1))
    return found


@pytest.mark.parametrize("streams", [2, 5, 200])
def test_a_late_operation_waits_for_the_last_earlier_launch_to_end(streams: int) -> None:
    random = np.random.default_rng(streams)
    count = 200
    none = np.full(count, -1, np.int64)
    ops = DeviceOps(
        op=np.arange(count), node=np.arange(count), stream=random.integers(0, streams, count).astype(np.int32),
        dur=random.integers(0, 40, count) * 1_000, fixed_start=np.cumsum(random.integers(-20, 40, count)) * 1_000,
        after_stream=none, after_launch=none, dep=none, after_dep=none, step=none.astype(np.int32),
    )  # fmt: skip
    submitted = ops.fixed_start - random.integers(0, 60, count) * 1_000
    ready, launched = np.maximum(stream_free(ops), submitted), random.random(count) < 0.9
    found = _ended_last(ops, ready, launched).tolist()
    assert found == _plain(ops, ready, launched)
    assert sum(i >= 0 for i in found) > 10


def _trace(path: Path, streams: int) -> Path:
    """Return a trace in which each kernel waits for the one before, on another stream.

    A step ends with a wait for the device.
    """
    events = []
    for i in range(KERNELS):
        at, stream = 1_000.0 + 10 * i, 7 + i % streams
        launch = {"correlation": i + 1, "External id": i + 1}
        events += [
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": at, "dur": 2, "args": launch},
            {"ph": "X", "cat": "kernel", "name": f"k{i % 7}", "pid": 0, "tid": stream, "ts": at + 20, "dur": 9,
             "args": launch | {"device": 0, "stream": stream}},
        ]  # fmt: skip
        if i % SYNCHRONIZED == 0:
            wait = {"cuda_sync_kind": "Stream Synchronize", "device": 0, "stream": stream, "correlation": KERNELS + i + 1}
            call = {"ph": "X", "pid": 1, "tid": 1, "ts": at + 3, "dur": 4, "args": {"correlation": KERNELS + i + 1}}
            events += [
                call | {"cat": "cuda_runtime", "name": "cudaStreamSynchronize"},
                call | {"cat": "cuda_sync", "name": "Stream Sync", "pid": 0, "tid": stream, "args": wait},
            ]
    for step in range(STEPS):
        at, long = 1_000.0 + 10 * step * KERNELS / STEPS, 10 * KERNELS / STEPS
        for name, cat, start, dur in (
            (f"ProfilerStep#{step}", "user_annotation", at - 0.5, long - 1), ("cudaDeviceSynchronize", "cuda_runtime", at + long - 5, 2),
        ):  # fmt: skip
            events.append({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": dur})
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_one_stream_per_kernel_takes_about_as_long_as_few_streams(tmp_path: Path) -> None:
    def seconds(streams: int, name: str) -> float:
        folder = DataFolder(tmp_path / name).create()
        recording = ingest_file(_trace(tmp_path / f"{streams}.json", streams), folder)
        began = time.process_time()
        ensure_derived(folder, recording.id)
        return time.process_time() - began

    seconds(3, "warm")
    many, few = zip(*((seconds(KERNELS, f"many{n}"), seconds(4, f"few{n}")) for n in range(3)), strict=True)
    assert min(many) < TIMES_AS_LONG * min(few)
