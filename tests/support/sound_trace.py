"""One small intact trace in kineto's format, and variants of it."""

from __future__ import annotations

import gzip
import json

BASE = 1_700_000_000_000_000_000


def event(cat="cpu_op", name="aten::add", ts=10.5, dur=2.25, pid=1, tid=2, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def sound_events(steps=3):
    """Return a few steps of operators, launches, kernels and copies, as kineto writes them."""
    events = []
    for i in range(steps):
        t = 1000.0 * i + 100.125
        link = {"External id": 10 * i + 1}
        events += [
            event("user_annotation", f"ProfilerStep#{i}", t, 900.5, **{"External id": 10 * i}),
            event(
                "cpu_op",
                "aten::linear",
                t + 10,
                50.125,
                **link,
                **{"Input Dims": [[8, 16], [16, 4], []], "Input type": ["float", "float", ""]},
            ),
            event("cpu_op", "aten::addmm", t + 12, 40, **{"External id": 10 * i + 2, "Sequence number": i}),
            event("cuda_runtime", "cudaLaunchKernel", t + 20, 5.5, **link, correlation=100 + i),
            event(
                "kernel",
                "void gemm<float>(int*)",
                t + 90,
                30.001,
                0,
                7,
                correlation=100 + i,
                device=0,
                stream=7,
                grid=[1, 2, 3],
                block=[128, 1, 1],
            ),
            event("cuda_runtime", "cudaMemcpyAsync", t + 70, 3, correlation=200 + i),
            event(
                "gpu_memcpy",
                "Memcpy HtoD (Pageable -> Device)",
                t + 130,
                4,
                0,
                7,
                correlation=200 + i,
                device=0,
                stream=7,
                bytes=4096,
            ),
            event("python_function", f"train.py({i}): step", t + 1, 880, **{"Python id": i}),
            {"ph": "s", "id": 100 + i, "pid": 1, "tid": 2, "ts": t + 20, "cat": "ac2g", "name": "ac2g"},
            {"ph": "f", "id": 100 + i, "pid": 0, "tid": 7, "ts": t + 90, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        ]
    events.append({"name": "thread_name", "ph": "M", "ts": 0, "pid": 1, "tid": 2, "args": {"name": "thread 2 (python)"}})
    return events


def sound(events=None, **more):
    return {
        "schemaVersion": 1,
        "baseTimeNanoseconds": BASE,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        **more,
        "traceEvents": sound_events() if events is None else events,
    }


def text(document=None, **how):
    return json.dumps(sound() if document is None else document, **how).encode()


def with_event(raw: bytes) -> bytes:
    """Return the intact trace with one raw event inserted in the middle."""
    events = [json.dumps(e).encode() for e in sound_events()]
    events.insert(5, raw)
    return b'{"schemaVersion": 1, "baseTimeNanoseconds": %d, "traceEvents": [\n%s\n]}' % (BASE, b",\n".join(events))


def kernel(
    name: bytes = b'"k"',
    ts: bytes = b"500.5",
    dur: bytes = b"7.25",
    args: bytes = b'{"correlation": 900, "device": 0, "stream": 7}',
) -> bytes:
    return b'{"ph": "X", "cat": "kernel", "name": %s, "pid": 0, "tid": 7, "ts": %s, "dur": %s, "args": %s}' % (
        name,
        ts,
        dur,
        args,
    )


def members(content: bytes, parts: int) -> bytes:
    size = len(content) // parts + 1
    return b"".join(gzip.compress(content[i : i + size]) for i in range(0, len(content), size))


def each(**change) -> bytes:
    """Return the intact trace with the same change to every complete event."""
    return text(sound([{**e, **change} if e["ph"] == "X" else e for e in sound_events()]))


GOOD = text()


PACKED = gzip.compress(GOOD, mtime=0)
