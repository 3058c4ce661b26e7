"""Tests of the reasons for lower clocks, which rules, charts and live alerts decode from NVML's bits."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pynvml
import pytest

from sawtooth.analysis.telemetry.phases import throttle_bands
from sawtooth.analysis.telemetry.series import throttled_times
from sawtooth.ingest.quantities.throttling import HOLDING, THROTTLE_REASONS, ThrottleReason, holding_reasons
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder

SECOND = 10**9


def test_every_bit_of_nvml_has_a_row() -> None:
    bits = [reason.bit for reason in THROTTLE_REASONS]
    assert len(bits) == len(set(bits)) and sum(bits) == pynvml.nvmlClocksEventReasonAll
    for name_of in (lambda r: r.label, lambda r: r.nvidia_smi):
        names = [name_of(reason) for reason in THROTTLE_REASONS if name_of(reason)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("reason", THROTTLE_REASONS, ids=lambda reason: reason.label)
def test_rules_and_charts_agree_on_a_reason(reason: ThrottleReason) -> None:
    times, mask = np.arange(4) * SECOND, np.array([0, reason.bit, reason.bit, 0])
    bands = throttle_bands(times, mask.astype(float), np.full(4, np.nan))
    drawn = throttled_times(pd.DataFrame({"time_ns": times, "clock_event_mask": mask}))
    expected = [reason.label] if reason in HOLDING else []
    assert [band.reason for band in bands] == drawn["reason"].tolist() == expected
    assert [band.kind for band in bands] == [reason.kind for _ in expected]
    assert [found.label for found in holding_reasons(reason.bit | 1 << 40)] == expected


def test_nvidia_smi_can_have_a_column_for_each_reason(tmp_path: Path) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(
        "timestamp, index, utilization.gpu [%], clocks_event_reasons.sw_power_cap, clocks_event_reasons.hw_thermal_slowdown\n"
        "2026/11/21 02:38:40.000, 0, 5 %, Active, Not Active\n"
        "2026/11/21 02:38:41.000, 0, 5 %, Active, Active\n"
        "2026/11/21 02:38:42.000, 0, 5 %, Not Active, Not Active\n"
        "2026/11/21 02:38:43.000, 0, 5 %, [N/A], [N/A]\n"
    )
    folder = DataFolder(tmp_path / "data")
    con = duckdb.connect(str(folder.recording_file(ingest_file(path, folder).id)), read_only=True)
    masks = con.execute("SELECT clock_event_mask FROM samples ORDER BY time_ns").fetchall()
    assert masks == [(0x4,), (0x44,), (0,), (None,)]
