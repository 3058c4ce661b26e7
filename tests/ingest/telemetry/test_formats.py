"""Tests of recognizing and reading telemetry formats, also of sessions and damaged files."""

from __future__ import annotations

import gzip
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import SAMPLE_COLUMNS
from sawtooth.ingest.schema import schema_sql
from sawtooth.ingest.telemetry.formats import nvml_jsonl
from sawtooth.ingest.telemetry.registry import reader_for, readers
from sawtooth.ingest.telemetry.session import write_session_file
from sawtooth.ingest.telemetry.table import find_gaps
from sawtooth.ingest.telemetry.values import number
from tests.support.ingested_telemetry import ingested, rows
from tests.support.paths import TELEMETRY
from tests.support.sampler_bench import Bench, recorded
from tests.support.sessions import read_session


def test_a_session_is_ingested_as_one_file_with_its_gaps(tmp_path: Path) -> None:
    bench = Bench()
    folder = recorded(tmp_path / "live", 5, (2, lambda: bench.time.advance(1.0)), bench=bench)
    target = tmp_path / "session.jsonl"
    assert write_session_file(folder, target) == target.stat().st_size
    con = ingested(target, tmp_path)
    direct = read_session(folder).columns()
    assert rows(con, "SELECT count(*), count(tensor_active_pct), max(device) FROM samples") == [
        (len(direct["time_ns"]), int((~(direct["tensor_active_pct"] != direct["tensor_active_pct"])).sum()), 1)
    ]
    assert rows(con, "SELECT uuid, driver FROM devices ORDER BY device") == [("GPU-a", "580.159.04"), ("GPU-b", "580.159.04")]
    gaps = rows(con, "SELECT device, end_ns - start_ns, reason FROM sample_gaps ORDER BY device")
    assert [(d, why) for d, _, why in gaps] == [(0, "the sampler was not scheduled"), (1, "the sampler was not scheduled")]
    assert all(1.0e9 <= length <= 1.2e9 for _, length, _ in gaps)


def test_a_compressed_segment_is_ingested(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "live")
    path = tmp_path / "segment.jsonl.gz"
    path.write_bytes(gzip.compress((folder / "samples-0001.jsonl").read_bytes()))
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT count(*) FROM samples WHERE device = 0") == [(50,)]
    assert rows(con, "SELECT host IS NOT NULL FROM recording") == [(True,)]


def test_columns_are_those_of_the_schema() -> None:
    table = schema_sql().split("CREATE TABLE samples (")[1].split(");")[0]
    named = re.findall(r"(\w+) (?:INTEGER|BIGINT|DOUBLE)", table)
    assert named == ["device", "time_ns", *SAMPLE_COLUMNS]


def test_every_reader_knows_its_own_and_no_other() -> None:
    owners = {
        "query.csv": "nvidia-smi CSV",
        "dmon_dated.txt": "nvidia-smi dmon",
        "dmon_gpm.txt": "nvidia-smi dmon",
        "dcgmi.txt": "dcgmi dmon",
        "nvidia_smi_tables.txt": "nvidia-smi tables",
        "prometheus_dcgm.json": "Prometheus range query",
        "prometheus_nvitop.json": "Prometheus range query",
        "wandb.csv": "W&B system metrics",
        "mlflow.jsonl": "MLflow system metrics",
        "amd_smi_metric.csv": "table of GPU samples",
        "rocm_smi.csv": "table of GPU samples",
        "nvitop.csv": "table of GPU samples",
        "xpu_smi.csv": "table of GPU samples",
        "plain.csv": "table of GPU samples",
        "long.csv": "table with one value per row",
        "amd_smi_metric.json": "amd-smi or rocm-smi JSON",
        "rocm_smi.json": "amd-smi or rocm-smi JSON",
        "gpustat.json": "gpustat JSON",
        "gpustat.txt": "gpustat",
        "rocm_smi_tables.txt": "rocm-smi tables",
        "nvidia_smi_q.xml": "nvidia-smi -q",
        "dcgm_exporter.txt": "Prometheus text",
        "tegrastats.txt": "tegrastats",
        "jtop.csv": "table of jtop",
        "npu_smi_watch.txt": "table of amd-smi or npu-smi",
    }
    for name, owner in owners.items():
        head = (TELEMETRY / name).read_bytes()[:65536]
        assert [r.name for r in readers() if r.sniff(head)] == [owner], name
    written_by_the_tests = {"sampler session", "NVML JSONL"}
    assert {reader.name for reader in readers()} == {*owners.values(), *written_by_the_tests}, "each reader has an excerpt"
    trace = b'{"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "gpu.0.gpu"}]}'
    assert reader_for(trace) is None
    assert reader_for(b"a,b\n1,2\n") is None


@pytest.mark.parametrize("name", [p.name for p in TELEMETRY.iterdir() if p.suffix != ".md"])
def test_a_file_cut_anywhere_is_read_or_refused_with_a_sentence(tmp_path: Path, name: str) -> None:
    content = (TELEMETRY / name).read_bytes()
    for cut in range(0, len(content), max(1, len(content) // 25)):
        reader = reader_for(content[:cut])
        if reader is None:
            continue
        try:
            found = reader.read(iter(content[:cut].split(b"\n")))
        except SourceError as error:
            assert str(error).endswith(".")
        else:
            assert all(len(v) == len(found.columns["time_ns"]) for v in found.columns.values())


@pytest.mark.parametrize(
    ("cell", "factor", "value"),
    [
        ("81.14 W", 1, 81.14),
        ("81,14 W", 1, 81.14),
        ("143771 MiB", 1, 143771 * 1048576),
        ("143771", 1048576, 143771 * 1048576),
        ("0x0000000000000004", 1, 4),
        ("0 %", 1, 0),
        ("-", 1, None),
        ("[N/A]", 1, None),
        ("N/A", 1, None),
        ("[Not Supported]", 1, None),
        ("[GPU is lost]", 1, None),
        ("ERR!", 1, None),
        ("", 1, None),
        ("5 furlongs", 1, None),
    ],
)
def test_values_of_table_cells(cell: str, factor: float, value: float | None) -> None:
    found = number(cell, factor)
    assert found == (value if value is None else pytest.approx(value))


def test_gaps_are_pauses_of_more_than_three_periods() -> None:
    times = np.array([0, 100, 200, 300, 601, 700, 1000], np.int64) * 1_000_000
    assert find_gaps(times) == [(300_000_000, 601_000_000)]
    assert math.isfinite(len(find_gaps(times[:2])))


def test_each_device_of_nvml_lines_has_its_own_memory() -> None:
    totals = {0: 24 << 30, 1: 140 << 30, 2: None}
    rows = [{"t_ns": 10**9 * k, "gpu": gpu, "mem_total": total} for k in range(3) for gpu, total in totals.items()]
    telemetry = nvml_jsonl.read(iter(json.dumps(row).encode() for row in rows))
    assert {device["device"]: device["memory_bytes"] for device in telemetry.devices} == totals


def test_jitter_below_a_millisecond_is_not_a_gap(tmp_path: Path) -> None:
    path = tmp_path / "nvml.jsonl"
    times = (0, 10, 20, 30, 10**6)
    path.write_text("".join(json.dumps({"t_ns": 10**18 + t, "gpu": 0, "gpu_util": 50}) + "\n" for t in times))
    assert rows(ingested(path, tmp_path), "SELECT * FROM sample_gaps") == []
