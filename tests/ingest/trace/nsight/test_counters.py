"""Tests of sampled counters in Nsight Systems exports."""

from __future__ import annotations

import pytest

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.trace.nsight import samples
from tests.support import nsight_export as export


def test_sampled_counters_are_telemetry_on_the_trace_s_clock(tmp_path, folder, ask):
    export_tables = export.tables()
    export.add_metrics(export_tables)
    samples, devices = ask(
        export_tables,
        "SELECT count(*), min(time_ns), avg(gr_active_pct), max(sm_active_pct), max(dram_active_pct), avg(clock_sm_mhz), count(sm_occupancy_pct) FROM samples",
        "SELECT DISTINCT device FROM samples",
    )
    # 4 steps of 1 ms, sampled every 0.1 ms. Reads (30 %) and writes (10 %) are one quantity. Warps in flight are not a percentage.
    assert samples == [(40, export.EPOCH_NS + 100_000, 50.0, 90.0, 40.0, 1980.0, 0)]
    assert devices == [(0,)]
    ref = ingest_file(tmp_path / "export.sqlite", folder)
    assert (ref.kind, ref.samples) == ("trace", True)


def test_memory_is_called_vram_on_gpus_without_hbm(ask):
    export_tables = export.tables()
    export.add_metrics(export_tables)
    for row in export_tables["TARGET_INFO_GPU_METRICS"]:
        row["metricName"] = row["metricName"].replace("DRAM", "VRAM")
    (samples,) = ask(export_tables, "SELECT max(dram_active_pct) FROM samples")
    assert samples == [(40.0,)]


def test_only_gpus_that_the_program_used_are_sampled_devices(ask):
    export_tables = export.tables()
    export_tables["TARGET_INFO_CUDA_DEVICE"] = [{"gpuId": 5, "cudaId": 0, "pid": export.PID}]
    export.add_metrics(export_tables, gpus=(0, 5))
    (rows,) = ask(export_tables, "SELECT device, count(*) FROM samples GROUP BY 1")
    assert rows == [(0, 40)]


def test_samples_beyond_the_limit_are_left_out_and_reported(ask, monkeypatch):
    monkeypatch.setattr(samples, "MAX_SAMPLES", 100)
    export_tables = export.tables()
    export.add_metrics(export_tables)
    rows, notes, kernels = ask(
        export_tables,
        "SELECT count(*) FROM samples",
        "SELECT severity FROM diagnostics WHERE key = 'samples_many'",
        "SELECT count(*) FROM gpu_ops",
    )
    assert (rows, notes, kernels) == ([(0,)], [("data_loss",)], [(12,)])


@pytest.mark.parametrize("damage", ["no names", "texts", "clock that wrapped"])
def test_only_invalid_counters_are_lost(ask, damage):
    export_tables = export.tables()
    export.add_metrics(export_tables)
    if damage == "no names":
        export_tables.pop("TARGET_INFO_GPU_METRICS")
    for row in export_tables["GPU_METRICS"]:
        if damage == "texts":
            row["value"] = "much"
        if damage == "clock that wrapped" and row["metricId"] == 1:
            row["value"] = 2_500_000_000 - (1 << 32)
    (samples,) = ask(export_tables, "SELECT count(*), max(clock_sm_mhz) FROM samples")
    assert samples == [(40, 2500.0) if damage == "clock that wrapped" else (0, None)]
