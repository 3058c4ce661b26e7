"""Tests of the diagnosis of a running session: it is made like that of a finished recording.

A diagnosis comes in time and does not flicker. Time without samples counts as a gap.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sawtooth.app.charts.live import points_of
from sawtooth.app.live.diagnosis import LiveFinding
from sawtooth.app.live.series import LiveSeries, with_gaps
from sawtooth.app.live.sessions import LiveSession
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.segments import SegmentWriter

START = 1_800_000_000_000_000_000
HEALTHY = {"util_pct": 95.0, "clock_sm_mhz": 1755.0, "clock_event_mask": 0, "power_w": 600.0, "mem_used_bytes": 40e9}
HOT = HEALTHY | {"clock_sm_mhz": 1100.0, "clock_event_mask": 0x40}


class Fed:
    """A session of ``gpus`` GPUs that a test feeds tick by tick, ``hz`` a second."""

    def __init__(self, folder: Path, gpus: int, hz: float) -> None:
        devices = [{"device": d, "name": "NVIDIA H200", "uuid": f"GPU-{d}", "memory_bytes": 100e9} for d in range(gpus)]
        self.step = int(1e9 / hz)
        meta = {"v": 1, "session": "s", "host": "node7", "started_m": 0, "started_w": START, "interval_ns": self.step}
        self.writer = SegmentWriter(folder, {**meta, "columns": list(COLUMNS), "devices": devices, "name": "", "pid": 1})
        self.session, self.at, self.gpus = LiveSession(folder), 0, gpus

    def feed(self, seconds: float, different: dict[int, dict[str, Any]] | None = None) -> None:
        """Add ``seconds`` of samples; ``different`` are the values of GPUs that are not healthy."""
        for _ in range(round(seconds * 1e9 / self.step)):
            rows = [[(different or {}).get(gpu, HEALTHY).get(column) for column in COLUMNS] for gpu in range(self.gpus)]
            self.writer.write({"k": "tick", "m": self.at, "w": START + self.at, "g": rows})
            self.at += self.step
        if seconds:
            self.writer.sync(0)
        self.session.look()

    def hot(self) -> list[LiveFinding]:
        return [finding for finding in self.session.findings() if finding.observation.kind == "thermal-throttling"]


@pytest.mark.parametrize(("healthy_s", "hz"), [(0, 10), (45, 10), (340, 1)])
def test_a_gpu_that_begins_to_throttle_is_named_within_30_s(tmp_path: Path, healthy_s: float, hz: float) -> None:
    fed = Fed(tmp_path / "s", 8, hz)
    fed.feed(healthy_s)
    assert fed.session.findings() == ()
    for second in range(1, 31):
        fed.feed(1, {2: HOT})
        if second == 1:
            assert any("GPU 2 is throttled by" in alert for alert in fed.session.alerts()) or not healthy_s
        if fed.hot():
            break
    (finding,) = fed.hot()
    assert finding.observation.devices == (2,) and finding.observation.value == pytest.approx(
        1100 / 1755, rel=0.02 if healthy_s else 1
    )
    assert "GPU 2" in finding.sentence and "last" in finding.sentence


def test_a_finding_stays_while_the_reason_comes_and_goes(tmp_path: Path) -> None:
    fed = Fed(tmp_path / "s", 4, 5)
    fed.feed(30)
    shown = []
    for second in range(60):
        fed.feed(1, {1: HOT} if second % 3 else None)
        shown.append((bool(fed.hot()), bool(fed.session.alerts())))
    findings, alerts = ([one[i] for one in shown] for i in (0, 1))
    for states in (findings, alerts):
        assert states[-1] and sum(before != after for before, after in itertools.pairwise(states)) <= 1
    assert findings.index(True) < 45 and alerts.index(True) < 3
    fed.feed(400)
    assert fed.hot() == [] and fed.session.alerts() == []  # The problem is over.


def test_slow_changes_refer_to_the_complete_session(tmp_path: Path) -> None:
    # Utilization falls from 95 to 45 % within 40 minutes, of which five are stored as sampled.
    fed = Fed(tmp_path / "s", 2, 0.5)
    for part in range(40):
        falling = HEALTHY | {"util_pct": 95.0 - 50.0 * part / 39}
        fed.feed(60, {0: falling, 1: falling})
    (trend,) = [f for f in fed.session.findings() if f.observation.kind == "utilization-trend"]
    assert trend.observation.value == pytest.approx(-50, rel=0.1) and trend.over == "last 40 min"


def test_a_healthy_session_has_no_finding_at_any_time(tmp_path: Path) -> None:
    fed, random = Fed(tmp_path / "s", 4, 1), np.random.default_rng(5)
    for _ in range(25):
        noisy = {gpu: HEALTHY | {"util_pct": float(np.clip(random.normal(93, 4), 0, 100))} for gpu in range(4)}
        fed.feed(15, noisy)
        assert [f.sentence for f in fed.session.findings() if f.observation.severity != "info"] == []


def test_counters_that_drop_out_are_left_out(tmp_path: Path) -> None:
    fed = Fed(tmp_path / "s", 1, 10)
    working = HEALTHY | {"gr_active_pct": 90.0, "sm_active_pct": 70.0}
    fed.feed(5, {0: working})
    fed.feed(2, {0: working | {"gr_active_pct": 0.0, "sm_active_pct": 0.0}})
    fed.feed(5, {0: working})
    _, values = fed.session.line(0, "gr_active_pct", 0, 2000)
    assert np.isnan(values).sum() == 1 and np.nanmin(values) == 90.0
    idle = HEALTHY | {"util_pct": 0.0, "gr_active_pct": 0.0, "sm_active_pct": 0.0}
    fed.feed(2, {0: idle})
    assert fed.session.line(0, "gr_active_pct", 0, 2000)[1][-1] == 0.0


def test_a_telemetry_gap_breaks_the_line() -> None:
    series = LiveSeries()
    for i in range(300):
        if not 100 <= i < 160:
            series.add(START + i * 10**8, 50.0)
    times, values = series.line(START)
    (hole,) = np.flatnonzero(np.isnan(values))
    assert START + 99 * 10**8 < times[hole] < START + 160 * 10**8
    points = points_of(((times - times[-1]) / 1e9, values))
    assert points.count(None) == 1 and points[2 * hole + 1] is None
    at = np.arange(0, 10**11, 10**8)
    remaining, drawn = with_gaps(np.concatenate([at, at + 2 * 10**11]), np.tile(np.sin(at / 1e9), 2), 200)
    assert np.isnan(drawn).sum() == 1 and (np.diff(remaining) > 0).all()


def test_the_diagnosis_of_eight_gpus_is_fast(tmp_path: Path) -> None:
    fed = Fed(tmp_path / "s", 8, 10)
    fed.feed(60)
    began = time.perf_counter()
    fed.session.findings()
    assert time.perf_counter() - began < 1.0
