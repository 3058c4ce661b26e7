"""Tests of traces of PyTorch's Cuspy profiler, whose numbers equal those of a Kineto trace.

The trace's counters are telemetry.
"""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest

from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.incomplete.claims import analysed, result_of
from tests.support.chrome_trace import BASE_NS, matmul_loop
from tests.support.paths import ROOT

COPY = re.compile(r"Memcpy (\w+) \((.+) -> (.+)\)")
CUSPY_ARGUMENTS = {
    "device",
    "context",
    "stream",
    "correlation",
    "registers per thread",
    "shared memory",
    "grid",
    "block",
    "bytes",
    "graph id",
}


def as_cuspy(events: list[dict[str, Any]]) -> None:
    """Rewrite Kineto's events as Cuspy writes them."""
    for event in events:
        args, category = event.get("args", {}), event.get("cat")
        if category in ("kernel", "gpu_memcpy", "gpu_memset"):
            event["args"] = {key: value for key, value in args.items() if key in CUSPY_ARGUMENTS} | {
                "channel": 3,
                "channel_type": "COMPUTE",
            }
        if category in ("cuda_runtime", "cuda_driver"):
            event["args"] = {"cbid": 211} | {key: value for key, value in args.items() if key == "correlation"}
        if category == "gpu_memcpy" and (match := COPY.fullmatch(event["name"])):
            direction, source, destination = match.groups()
            kinds = {"src kind": source.lower().replace(" ", "_"), "dst kind": destination.lower().replace(" ", "_")}
            event["name"], event["args"] = "Memcpy", event["args"] | {"copy kind": direction, "flags": 0} | kinds
        if category == "gpu_memset":
            event["name"], event["args"] = "Memset", event["args"] | {"value": 0, "memory kind": 3}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("recording", ["copy_pageable", "gpt_reads", "mlp_graph"])
def test_a_run_has_the_same_report_in_both_forms(recording: str) -> None:
    text = gzip.decompress((ROOT / "tests" / "recordings" / recording / "trace.json.gz").read_bytes())
    trace = json.loads(text)
    as_cuspy(trace["traceEvents"])
    kineto, cuspy = analysed([("t.json", text)]), analysed([("t.json", json.dumps(trace).encode())])
    assert kineto is not None and cuspy is not None
    for key, reading in kineto.metrics.items():
        if key not in ("achieved_occupancy", "sm_efficiency"):  # Cuspy records no occupancy
            assert cuspy.metrics[key].value == pytest.approx(reading.value), key
    assert [f.title for f in cuspy.findings] == [f.title for f in kineto.findings]


def test_graph_kernels_are_checked_on_their_real_streams() -> None:
    trace = matmul_loop(8)
    for event in [e for e in trace.events if e["cat"] == "kernel"][::2]:
        event["args"] |= {"original_stream": 7, "stream": 1_000_000 + event["args"]["correlation"]}
        event["dur"] += 130  # Ends after the next addition on stream 7 begins.
    diagnostics = {diagnostic.key: diagnostic.count for diagnostic in result_of(trace).diagnostics}
    assert diagnostics["overrun"] == 8


def counter(device: int, name: str, time_us: float, value: float) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": f"GPU {device} Counters", "tid": 0, "ts": time_us, "args": {"": value}}


@pytest.mark.parametrize("sampled", [False, True])
def test_counters_are_telemetry_on_the_traces_clock(tmp_path, sampled: bool) -> None:
    trace = matmul_loop(40)
    for k in range(20):
        trace.events.append(counter(0, "Power (W)", 2000 * k, 400 + k))
        trace.events.append(counter(0, "SM Clock (MHz)", 2000 * k, 1500))
        trace.events.append(counter(0, "Fan Speed (%)", 2000 * k, 30))
        if sampled:
            trace.events.append(counter(0, "SM Active (%)", 2000 * k, 70))
    path = trace.write(tmp_path / "t.json")
    folder = DataFolder(tmp_path / "d").create()
    (run,) = ingest_into_runs(folder, [(path, path.name)]).runs
    with Library(folder) as library, library.open(run.recordings[0].id) as recording:
        rows = recording.rows("SELECT device, time_ns, power_w, clock_sm_mhz, sm_active_pct FROM samples ORDER BY time_ns")
        notes = dict(recording.rows("SELECT key, count FROM diagnostics"))
    assert rows[3] == (0, BASE_NS + 6_000_000, 403.0, 1500.0, 70.0 if sampled else None) and len(rows) == 20
    assert notes["not_stored_ph_C"] == 20  # The fan's counters.
    assert notes.get("pm_sampling") == (20 if sampled else None)
