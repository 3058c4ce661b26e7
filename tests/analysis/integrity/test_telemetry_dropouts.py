"""Tests of telemetry dropouts: counters that read 0 while NVML says that the GPU works.

Counters that read 0 while the GPU waits are not dropouts.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry import series
from sawtooth.analysis.telemetry.signal.dropouts import zeros_at_work
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder


@pytest.mark.parametrize(("util_at_zero", "mean"), [(85, 85.0), (10, 79.3)])  # 14 of 15 samples of 85 %: 79.3 %
def test_dropouts_are_left_out_of_means_and_pictures(tmp_path, util_at_zero, mean) -> None:
    lines = [{"meta": True, "name": "NVIDIA H200", "hz": 10.0, "gpus": [{"gpu": 0, "name": "NVIDIA H200"}]}]
    for k in range(300):
        lost = k % 15 == 7
        lines.append(
            {
                "t_ns": 1_790_000_000_000_000_000 + k * 100_000_000,
                "gpu": 0,
                "gpu_util": util_at_zero if lost else 85,
                "gpm_sm": 0.0 if lost else 85.0,
                "gpm_graphics": 0.0 if lost else 85.0,
            }
        )
    path = tmp_path / "nvml.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    folder = DataFolder(tmp_path / "d").create()
    (run,) = ingest_into_runs(folder, [(path, path.name)]).runs
    with Library(folder) as library, library.open(run.recordings[0].id) as recording:
        shown = series.telemetry(recording, 0).samples["sm_active_pct"]
    assert shown.mean() == pytest.approx(mean, abs=0.1)
    assert shown.isna().sum() == (20 if util_at_zero == 85 else 0)


@pytest.mark.parametrize(
    ("lost", "every_s", "idle_w", "zeros"),
    [
        (0.3, 0.2, 190, True),
        (0.0, 0.2, 190, False),
        (0.3, 0.2, 222, False),  # Power does not distinguish work from idle time.
        (0.3, 0.1, 190, False),  # Utilization may lag behind the power.
    ],
)
def test_utilization_that_reads_0_at_the_power_of_work_is_missing(lost, every_s, idle_w, zeros) -> None:
    chance = np.random.default_rng(4)
    times = (np.arange(200) * every_s * 1e9).astype(np.int64)
    works = chance.random(200) < 0.4
    util = np.where(works & (chance.random(200) >= lost), 40.0, 0.0)
    power = np.where(works, 225.0, idle_w) + chance.normal(0, 1, 200)
    assert (zeros_at_work((times, util), (times, power)) > 0) == zeros
