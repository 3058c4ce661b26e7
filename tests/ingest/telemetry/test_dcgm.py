"""Tests of DCGM and Prometheus telemetry. The expected numbers were read from the excerpts by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawtooth.ingest.errors import SourceError
from tests.support.ingested_telemetry import diagnostics, ingested, rows
from tests.support.paths import TELEMETRY


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
    """dcgm-exporter 4.9 renamed its metrics, and uses hertz, joules, bytes and ratios."""
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
    labels = {"gpu": "0", "UUID": "GPU-aa", "modelName": "NVIDIA H100", "DCGM_FI_SYSTEM_DRIVER_VERSION": "580.1"}
    series = [{"metric": {"__name__": name, **labels}, "values": [[1795226089, str(v)]]} for name, v in values.items()]
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


def test_a_prometheus_response_of_a_data_centre_is_refused_at_once(tmp_path: Path) -> None:
    series = [
        {"metric": {"__name__": "DCGM_FI_DEV_GPU_UTIL", "gpu": "0", "Hostname": f"h{n}"}, "values": [[1700000000, "50"]]}
        for n in range(20_000)
    ]
    path = tmp_path / "many.json"
    path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}))
    with pytest.raises(SourceError, match="4,096 GPUs"):
        ingested(path, tmp_path)
