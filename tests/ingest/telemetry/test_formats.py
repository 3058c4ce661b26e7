"""Tests of telemetry of other tools, with excerpts of their output.

The expected numbers are read from the fixtures by eye.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.quantities.registry import SAMPLE_COLUMNS
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder, schema_sql
from sawtooth.ingest.telemetry.formats import nvml_jsonl
from sawtooth.ingest.telemetry.registry import reader_for, readers
from sawtooth.ingest.telemetry.session import write_session_file
from sawtooth.ingest.telemetry.table import find_gaps
from sawtooth.ingest.telemetry.values import number
from tests.support.paths import TELEMETRY
from tests.support.sampler_bench import recorded
from tests.support.sessions import read_session

UTC_023847 = 1795228727  # 2026-11-21 02:38:47 UTC


def ingested(path: Path, tmp_path: Path) -> duckdb.DuckDBPyConnection:
    folder = DataFolder(tmp_path / "data")
    ref = ingest_file(path, folder)
    return duckdb.connect(str(folder.recording_file(ref.id)), read_only=True)


def rows(con: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return con.execute(sql).fetchall()


def diagnostics(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[str, int]]:
    return {k: (s, n) for k, s, n in rows(con, "SELECT key, sentence, count FROM diagnostics")}


def test_nvidia_smi_csv(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "query.csv", tmp_path)
    text = (TELEMETRY / "query.csv").read_text().splitlines()
    assert rows(con, "SELECT count(*) FROM samples") == [(len(text) - 1,)]
    # 2026/11/21 02:38:53.152, 0, GPU-c34…, NVIDIA H200, 0 %, 0 %, 0 MiB, 143771 MiB, 81.… W, 37, 345 MHz, 3201 MHz, 0x…1
    first = text[1].split(", ")
    (row,) = rows(
        con,
        "SELECT util_pct, mem_total_bytes, power_w, temp_c, clock_sm_mhz, clock_mem_mhz, clock_event_mask FROM samples LIMIT 1",
    )
    assert row[0] == float(first[4].removesuffix(" %"))
    assert row[1] == 143771 * 1048576
    assert row[2] == float(first[8].removesuffix(" W"))
    assert row[4] == float(first[10].removesuffix(" MHz"))
    assert rows(con, "SELECT uuid, name FROM devices") == [(first[2], "NVIDIA H200")]
    assert "no time zone" in diagnostics(con)["zone_unknown"][0]
    assert rows(con, "SELECT clock FROM recording") == [("local",)]  # never taken as UTC unasked
    (seconds,) = re.findall(r"02:(\d\d):(\d\d)\.(\d\d\d)", text[1])
    assert rows(con, "SELECT min(time_ns) FROM samples") == [
        ((UTC_023847 - 38 * 60 - 47 + int(seconds[0]) * 60 + int(seconds[1])) * 10**9 + int(seconds[2]) * 10**6,)
    ]


def test_the_hour_that_occurs_twice_goes_forward(tmp_path: Path) -> None:
    # Berlin leaves summer time on 2026-10-25 at 03:00, which becomes 02:00: 02:59:59 (CEST) is followed by 02:00:00 (CET), a second later.
    path = tmp_path / "dst.csv"
    times = ["02:59:58.000", "02:59:59.000", "02:00:00.000", "02:00:01.000"]
    path.write_text("timestamp, utilization.gpu [%]\n" + "".join(f"2026/10/25 {t}, {i} %\n" for i, t in enumerate(times)))
    con = ingested(path, tmp_path)
    found = rows(con, "SELECT time_ns, util_pct FROM samples ORDER BY time_ns")
    assert [b[0] - a[0] for a, b in itertools.pairwise(found)] == [10**9] * 3
    assert [u for _, u in found] == [0, 1, 2, 3]


def test_nvidia_smi_csv_without_units_in_another_order_and_language(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(
        "\ufeffpower.draw.instant [W];index;utilization.gpu [%];timestamp;memory.used [MiB];power.draw [W]\r\n"
        "81,14;1;7;2026/11/21 02:38:47.500;100;80,0\r\n"
        "[N/A];1;[Not Supported];2026/11/21 02:38:48.500;100;80,0\r\n"
        "power.draw.instant [W];index;utilization.gpu [%];timestamp;memory.used [MiB];power.draw [W]\r\n"
        "81,20;0;8;2026/11/21 02:38:49.500;101;80,0\r\n"
        "81,20;0;8;2026/11/2"
    )
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT device, time_ns, util_pct, power_w, mem_used_bytes FROM samples ORDER BY time_ns") == [
        (1, UTC_023847 * 10**9 + 500_000_000, 7.0, 81.14, 100 * 1048576),
        (1, (UTC_023847 + 1) * 10**9 + 500_000_000, None, None, 100 * 1048576),
        (0, (UTC_023847 + 2) * 10**9 + 500_000_000, 8.0, 81.2, 101 * 1048576),
    ]
    assert diagnostics(con)["line_unreadable"][1] == 1


def test_a_csv_without_times_says_how_to_record_them(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("index, utilization.gpu [%]\n0, 5 %\n")
    with pytest.raises(SourceError, match="--query-gpu=timestamp"):
        ingested(path, tmp_path)


def test_a_csv_whose_seconds_count_from_its_start_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("time,utilization.gpu [%]\n0,50\n1.5,60\n3,70\n")
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT time_ns, util_pct FROM samples ORDER BY time_ns") == [
        (0, 50.0), (1_500_000_000, 60.0), (3_000_000_000, 70.0)
    ]  # fmt: skip
    assert rows(con, "SELECT clock FROM recording") == [("unknown",)]


def test_dmon_with_dates(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "dmon_dated.txt", tmp_path)
    assert rows(
        con,
        "SELECT device, time_ns, util_pct, power_w, temp_c, mem_temp_c, clock_mem_mhz, clock_sm_mhz, mem_used_bytes FROM samples",
    ) == [(0, (UTC_023847 + s) * 10**9, 0.0, 81.0, 37.0, 39.0, 3201.0, 345.0, 0) for s in (-4, -3, -1, 0)]
    assert rows(con, "SELECT clock FROM recording") == [("local",)]


def test_dmon_with_gpm_and_without_dates(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "dmon_gpm.txt", tmp_path)
    assert rows(con, "SELECT time_ns, power_w, tensor_active_pct, gr_active_pct FROM samples") == [
        (0, 127.0, None, None),
        (10**9, 109.0, None, None),
        (2 * 10**9, 81.0, 0.0, 0.0),
    ]
    assert rows(con, "SELECT clock FROM recording") == [("unknown",)]
    assert '"assumed_interval_ns": 1000000000' in rows(con, "SELECT metadata FROM recording")[0][0]


def test_dcgmi_ratios_become_percent_and_blanks_null(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "dcgmi.txt", tmp_path)
    assert rows(
        con,
        "SELECT device, time_ns, tensor_active_pct, power_w, temp_c, energy_j FROM samples ORDER BY 1, 2",
    ) == [
        (0, 0, 61.0, 512.106, 55.0, 123456.789),
        (0, 10**9, 12.5, 300.0, 54.0, 123756.789),
        (0, 2 * 10**9, 12.6, 301.0, 54.0, 124056.789),
        (1, 0, None, 81.2, None, None),
        (1, 10**9, 0.0, 81.1, 31.0, 23.456),
    ]
    assert diagnostics(con)["instances_left_out"][1] == 1
    assert "blank_value" in diagnostics(con)


def test_prometheus_dcgm(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "prometheus_dcgm.json", tmp_path)
    assert rows(con, "SELECT device, time_ns, tensor_active_pct, mem_used_bytes, energy_j FROM samples ORDER BY 1, 2") == [
        (0, 1795226089500000000, 61.0, 12880 * 1048576, None),
        (0, 1795226104500000000, 59.0, 12880 * 1048576, None),
        (1, 1795226104500000000, None, None, 5.0),
    ]
    assert rows(con, "SELECT device, uuid, name FROM devices ORDER BY 1") == [
        (0, "GPU-aa", "NVIDIA H100 80GB HBM3"),
        (1, "GPU-bb", None),
    ]
    assert rows(con, "SELECT host FROM recording") == [("node7",)]
    assert diagnostics(con)["series_unknown"][1] == 1


def test_an_incomplete_character_in_a_name_is_replaced(tmp_path: Path) -> None:
    text = (TELEMETRY / "prometheus_dcgm.json").read_text()
    assert "node7" in text
    path = tmp_path / "half.json"
    path.write_text(text.replace("node7", "\\ud83dnode").replace("GPU-aa", "GPU-\\udc00"))
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT host FROM recording") == [("?node",)]
    assert rows(con, "SELECT uuid FROM devices ORDER BY device") == [("GPU-?",), ("GPU-bb",)]


def test_prometheus_dcgm_of_49_in_base_units(tmp_path: Path) -> None:
    """Telemetry of dcgm-exporter 4.9 is read in base units.

    It renamed what DCGM 4.7 deprecates and changed units to hertz, joules, bytes and ratios, by its release notes.
    """
    values = {
        "DCGM_FI_DEV_GPU_UTIL_RATIO": 0.71,
        "DCGM_FI_DEV_MEMORY_UTIL_RATIO": 0.25,
        "DCGM_FI_DEV_FB_USED_BYTES": 12880 * 1048576,
        "DCGM_FI_DEV_FB_CAPACITY_BYTES": 81559 * 1048576,
        "DCGM_FI_DEV_BOARD_POWER_WATTS": 512.1,
        "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL": 123456,
        "DCGM_FI_DEV_GPU_TEMP_CELSIUS": 55,
        "DCGM_FI_DEV_SM_CLOCK_HERTZ": 1_980_000_000,
        "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ": 3_201_000_000,
        "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 0.99,
        "DCGM_FI_PROF_TENSOR_UTIL_RATIO": 0.61,
        "DCGM_FI_PROF_DRAM_UTIL_RATIO": 0.4,
        "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND": 5e9,
    }
    about = {"gpu": "0", "UUID": "GPU-aa", "modelName": "NVIDIA H100", "DCGM_FI_SYSTEM_DRIVER_VERSION": "580.1"}
    series = [{"metric": {"__name__": name, **about}, "values": [[1795226089, str(v)]]} for name, v in values.items()]
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    con = ingested(path, tmp_path)
    names = "util_pct, mem_busy_pct, mem_used_bytes, mem_total_bytes, power_w, energy_j, temp_c, clock_sm_mhz, clock_mem_mhz"
    assert rows(con, f"SELECT {names}, gr_active_pct, tensor_active_pct, dram_active_pct FROM samples") == [
        (71, 25, 12880 << 20, 81559 << 20, 512.1, 123456, 55, 1980, 3201, 99, 61, 40)
    ]
    assert rows(con, "SELECT count, example FROM diagnostics WHERE key = 'series_unknown'") == [
        (1, "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND")
    ]


def test_prometheus_nvitop_with_one_response_per_line(tmp_path: Path) -> None:
    con = ingested(TELEMETRY / "prometheus_nvitop.json", tmp_path)
    assert rows(con, "SELECT util_pct, mem_used_bytes FROM samples ORDER BY time_ns") == [(55.0, 1 << 30), (60.0, 2 << 30)]


def test_an_instant_query_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"status":"success","data":{"resultType":"vector","result":[]}}')
    with pytest.raises(SourceError, match="query_range"):
        ingested(path, tmp_path)


def as_json_list(path: Path) -> None:
    path.write_text(json.dumps(wandb_records()))


def as_json_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in wandb_records()))


def as_pandas_json(path: Path) -> None:
    records = wandb_records()
    names = dict.fromkeys(k for r in records for k in r)
    path.write_text(json.dumps({n: {str(i): r.get(n) for i, r in enumerate(records)} for n in names}))


def as_gzipped_csv(path: Path) -> None:
    path.write_bytes(gzip.compress((TELEMETRY / "wandb.csv").read_bytes()))


def wandb_records() -> list[dict[str, Any]]:
    head, *lines = (TELEMETRY / "wandb.csv").read_text().splitlines()
    return [{k: float(v) for k, v in zip(head.split(","), line.split(","), strict=True) if k and v} for line in lines]


@pytest.mark.parametrize("write", [as_json_list, as_json_lines, as_pandas_json, as_gzipped_csv])
def test_wandb_in_every_shape(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "events")
    con = ingested(tmp_path / "events", tmp_path)
    query = (
        "SELECT device, time_ns, util_pct, power_w, mem_used_bytes, sm_active_pct, tensor_active_pct FROM samples ORDER BY 1, 2"
    )
    assert rows(con, query) == [
        (0, 1795226089250000000, 97.0, 506.7, 5146279936, 91.0, 31.0),
        (0, 1795226104250000000, 95.0, 500.1, 5146279936, 88.0, 30.0),
        (0, 1795226119250000000, 88.0, None, None, None, None),  # only the process' own utilization was logged
        (1, 1795226104250000000, 3.0, None, None, None, None),
        (1, 1795226119250000000, 4.0, None, None, None, None),
    ]
    assert "ratios" in diagnostics(con)["scale_inferred"][0]


@pytest.mark.parametrize("shape", ["lines", "list", "answers"])
def test_mlflow_in_every_shape(tmp_path: Path, shape: str) -> None:
    lines = (TELEMETRY / "mlflow.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    shapes = {
        "lines": "\n".join([*lines, "{cut"]),
        "list": json.dumps(records, indent=1),
        "answers": json.dumps({"metrics": records}),
    }
    (tmp_path / "history").write_text(shapes[shape])
    con = ingested(tmp_path / "history", tmp_path)
    assert rows(con, "SELECT device, time_ns, util_pct, power_w, mem_used_bytes FROM samples ORDER BY 1, 2") == [
        (0, 1795226089250000000, 97.0, 506.7, 5146300000),  # MLflow's megabytes are 10^6 bytes
        (0, 1795226099250000000, 95.0, None, None),
        (1, 1795226099250000000, 3.0, None, None),
    ]


def test_mlflow_without_a_gpu_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"key": "system/cpu_utilization_percentage", "value": 1, "timestamp": 1}')
    with pytest.raises(SourceError, match="nvidia-ml-py"):
        ingested(tmp_path / "x.json", tmp_path)


def test_wandb_shares_in_percent_stay_percent(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("_timestamp,system.gpu.0.smActive\n1795226089,0.4\n1795226104,55.5\n")
    assert rows(ingested(path, tmp_path), "SELECT sm_active_pct FROM samples ORDER BY time_ns") == [(0.4,), (55.5,)]


def test_wandb_with_relative_times_only(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('"Relative Time (Process)","my run - system/gpu.0.gpu"\n1.5,50\n16.5,60\n')
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT time_ns, util_pct FROM samples ORDER BY 1") == [(1_500_000_000, 50.0), (16_500_000_000, 60.0)]
    assert rows(con, "SELECT clock FROM recording") == [("unknown",)]


def test_foreign_parquet_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(SourceError, match="Export it as CSV"):
        ingested(path, tmp_path)


def test_a_session_ingests_as_one_file_with_its_gaps(tmp_path: Path) -> None:
    from tests.support.sampler_bench import Bench

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


def test_a_segment_alone_or_gzipped_ingests_too(tmp_path: Path) -> None:
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
    assert {reader.name for reader in readers()} == {*owners.values(), *written_by_the_tests}, "each has an excerpt"
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
    import numpy as np

    times = np.array([0, 100, 200, 300, 601, 700, 1000], np.int64) * 1_000_000
    assert find_gaps(times) == [(300_000_000, 601_000_000)]
    assert math.isfinite(len(find_gaps(times[:2])))


def test_a_prometheus_response_of_a_data_centre_is_refused_at_once(tmp_path: Path) -> None:
    series = [
        {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": f"h{n}"}, "values": [[1700000000, "50"]]}
        for n in range(20_000)
    ]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    with pytest.raises(SourceError, match="4,096 GPUs"):
        ingested(path, tmp_path)


def test_each_device_of_nvml_lines_has_its_own_memory() -> None:
    totals = {0: 24 << 30, 1: 140 << 30, 2: None}
    rows = [{"t_ns": 10**9 * k, "gpu": gpu, "mem_total": total} for k in range(3) for gpu, total in totals.items()]
    telemetry = nvml_jsonl.read(iter(json.dumps(row).encode() for row in rows))
    assert {device["device"]: device["memory_bytes"] for device in telemetry.devices} == totals


def test_jitter_below_a_millisecond_is_not_a_gap(tmp_path: Path) -> None:
    """The same rule as for sessions decides."""
    path = tmp_path / "nvml.jsonl"
    times = (0, 10, 20, 30, 10**6)
    path.write_text("".join(json.dumps({"t_ns": 10**18 + t, "gpu": 0, "gpu_util": 50}) + "\n" for t in times))
    assert rows(ingested(path, tmp_path), "SELECT * FROM sample_gaps") == []
