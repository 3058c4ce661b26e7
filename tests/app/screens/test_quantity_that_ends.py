"""Tests of telemetry of an idle GPU in which one quantity ends earlier than another.

The last minute has no value of it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop
from tests.support.pages import opened, run_of, words_of


@pytest.mark.sweep(2)
@pytest.mark.parametrize("kept", ["power_w", "gpu_util"])
@pytest.mark.parametrize("screen", ["verdict", "telemetry"])
def test_pages_show_a_quantity_until_it_ends(app_data: DataFolder, tmp_path: Path, kept: str, screen: str) -> None:
    samples = [{"t_ns": BASE_NS + i * 10**9, "gpu_util": 0, "power_w": 300.0 + i % 7} for i in range(40)]
    samples += [{"t_ns": BASE_NS + i * 10**9, kept: 0} for i in range(40, 300)]
    path = tmp_path / "nvml.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"meta": True, "name": "NVIDIA H200"}, *samples])))
    run = run_of(app_data, matmul_loop(steps=6).write(tmp_path / "trace.json"), path)
    assert words_of(opened(screen, run))
