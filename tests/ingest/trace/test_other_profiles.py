"""Tests of profiles of other tools, which are refused with the tool's name and advice."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from sawtooth.ingest.trace.other_profiles import refuse_other_profile
from tests.support.sound_trace import GOOD


def in_chrome_format(process: str, **event: Any) -> bytes:
    """Return a trace in Chrome's format with one named process and fifty equal events."""
    name_event = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}}
    events = [{"ph": "X", "pid": 1, "tid": 2, "ts": 100 * i, "dur": 70, "name": "work", **event} for i in range(50)]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": [name_event, *events]}).encode()


def packet(content: bytes) -> bytes:
    """Return a packet of a Perfetto trace; ``content`` has fewer than 128 bytes."""
    return bytes([0x0A, len(content)]) + content


CLOCKS = b"\x50\x01\x32\x08\x0a\x06\x08\x06\x10\x00\xff\x01"
OTHER_PROFILES = {
    "jax.json": (in_chrome_format("/device:GPU:3"), "JAX or XLA", "nsys profile"),
    "host.json": (in_chrome_format("/host:CPU"), "JAX or XLA", "nsys profile"),
    "timeline.json": (in_chrome_format("/job:worker/replica:0/task:2/device:GPU:0", cat="Op"), "TensorFlow", "nsys profile"),
    "chrome.json": (in_chrome_format("Renderer", cat="disabled-by-default-devtools.timeline"), "Chrome browser", "export_chrome_trace"),
    "memory.json": (json.dumps([[1726077563878112 + i for i in range(9000)], [[0] * 9] * 9000]).encode(), "memory timeline", "no kernels"),
    "908_results.json": (b'{"rocprofiler-sdk-tool":[{"metadata":{"node":{"id":0}},"buffer_records":{}}]}', "rocprofv3", "export_chrome_trace"),
    "et.json": (json.dumps({"schema": "1.1.1-chakra.0.0.4", "pid": 7, "nodes": [{"id": i} for i in range(9000)]}).encode(), "Chakra", "no times"),
    "flame.json": (b'{"$schema":"https://www.speedscope.app/file-format-schema.json","shared":{"frames":[]},"profiles":[]}', "speedscope", "export_chrome_trace"),
    "stacks.txt": (b"<module> (a.py:1);main (a.py:3);step (b.py:9) 120\n<module> (a.py:1);main (a.py:4) 7\n", "call stacks", "export_chrome_trace"),
    "flame.svg": (b'<?xml version="1.0" standalone="no"?>\n<svg version="1.1"><!--Flame Graph--></svg>', "flame graph", "export_chrome_trace"),
    "renamed_report.bin": (b"NVR\x00\x0a\x00\x00\x00" + bytes(90), "Nsight Compute", "nsys profile"),
    "a.ncu-rep": (b"\x01\x02" + bytes(90), "Nsight Compute", "nsys profile"),
    "a.nsys-rep": (b"\x99\xdd\xff\x00" + bytes(90), "Nsight Systems", "nsys export"),
    "memory.html": (b"<html>\n<head><meta charset='utf-8' /><title>GPU Memory Timeline HTML</title></head>", "memory timeline", "no kernels"),
    "memory.raw.json": (json.dumps([[1726077563878112000 + i, 1, 512, 0] for i in range(90)]).encode(), "memory timeline", "no kernels"),
    "old_et.json": (b'{"schema":"1.0.1","pid":7,"nodes":[{"name":"[pytorch|profiler|execution_graph|process]","id":1}]}', "Chakra", "no times"),
    "rank0.et": (b"\x0b\x0a\x090.0.4-dev\x20\x08\x01\x12\x08aten::mm" + bytes(30), "Chakra", "no times"),
    "trace_view.json": (in_chrome_format("Ascend Hardware"), "msprof", "only traces of GPUs"),
    "gaudi.json": (in_chrome_format("HPU Device 0"), "Gaudi", "only traces of GPUs"),
    "viz.json": (in_chrome_format("MainProcess", cat="FEE"), "VizTracer", "export_chrome_trace"),
    "memory.prof": (b"\n\x04\x08\x01\x10\x02\n\x04\x08\x03\x10\x04\x12\x10" + bytes(90), "pprof", "no kernels"),
    "xspace.bin": (b"\n\x30\x08\x01\x12\x0d/device:GPU:0" + bytes(60), "XPlane", "nsys profile"),
    "events": (bytes(12) + b"\x09" + bytes(8) + b"\x1a\x0dbrain.Event:2" + bytes(30), "TensorBoard", "export_chrome_trace"),
    "averages.txt": (b"-" * 40 + b"  " + b"-" * 12 + b"  \n" + b" " * 36 + b"Name    Self CPU %  \n", "key_averages", "sums"),
    "renamed.bin": (packet(CLOCKS) + packet(b"\x08\x00" + CLOCKS), "Perfetto", "export_chrome_trace"),
    "a.pftrace": (packet(b"\x50" + bytes(90)), "Perfetto", "export_chrome_trace"),
    "host.xplane.pb": (b"\x0a\x05/host", "XPlane", "nsys profile"),
}  # fmt: skip


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", OTHER_PROFILES)
def test_another_tool_s_profile_is_named(tmp_path: Path, name: str, zipped: bool) -> None:
    content, tool, advice = OTHER_PROFILES[name]
    path = tmp_path / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(content) if zipped else content)
    with pytest.raises(SourceError) as refusal:
        ingest_file(path, DataFolder(tmp_path / "data"))
    assert refusal.value.code == "E-TYPE"
    assert tool in str(refusal.value) and advice in str(refusal.value)


@pytest.mark.parametrize(
    "head",
    [
        b'[{"ph": "X", "name": "aten::mm"}]',
        b'{"schemaVersion": 1, "traceEvents": [], "schema": "chakra"}',
        b"\ntimestamp, utilization.gpu [%]\n2026/01/01 00:00:00.000, 93 %\n",
        b"\n\n\n",
        b"[[1.5, 2.5], [3, 4]]",
        b"01.01.2026 12:00:00;85; 300\n01.01.2026 12:00:01;86; 301\n",
        b"gpu;name H200;util\n0;H200;85\n",
    ],
)
def test_other_files_are_read_by_their_own_readers(head: bytes) -> None:
    refuse_other_profile(head, "file.json")


@pytest.mark.parametrize("name", ["trace.pftrace", "trace.perfetto-trace", "host.xplane.pb"])
def test_the_content_decides_and_not_the_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(GOOD)
    assert ingest_file(path, DataFolder(tmp_path / "data")).kind == "trace"
