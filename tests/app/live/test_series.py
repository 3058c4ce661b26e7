"""Tests of the series of live samples: short lines, bounded memory and order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sawtooth.app.charts.live import picture
from sawtooth.app.live import sessions as live_sessions
from sawtooth.app.live.series import MAX_POINTS, MAX_SAMPLES, SESSION_BUCKETS, WINDOW_NS, LiveSeries, thin
from sawtooth.app.live.sessions import LiveSession
from sawtooth.app.theme import QUANTITIES
from sawtooth.ingest.telemetry import session as telemetry_session
from tests.support.live_ticks import START, STEP, starved, write_ticks


@pytest.mark.parametrize("samples", [10, 5_000, 60_000])
def test_lines_are_short_and_keep_every_extreme(samples: int) -> None:
    series, rng = LiveSeries(), np.random.default_rng(1)
    values = rng.uniform(10, 20, samples)
    values[samples // 3], values[samples // 2] = 99.0, 1.0
    for i, value in enumerate(values):
        series.add(START + i * STEP, float(value))
    time_ns, drawn = series.line(START)
    assert len(drawn) <= MAX_POINTS + 2
    assert (drawn.max(), drawn.min()) == (99.0, 1.0)
    assert (np.diff(time_ns) >= 0).all()
    recent = series.since(START + (samples - 5) * STEP)[1]
    assert recent.tolist() == values[-5:].tolist()
    assert len(series._time) <= 2 * WINDOW_NS // STEP + 1
    assert len(series._bucket) <= SESSION_BUCKETS


def test_a_stopped_clock_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # The sender sets the time, so samples one nanosecond apart never leave the shown window.
    series = LiveSeries()
    for i in range(3 * MAX_SAMPLES):
        series.add(START + i, float(i))
    assert MAX_SAMPLES <= len(series) <= 1.1 * MAX_SAMPLES and series.latest() == 3 * MAX_SAMPLES - 1
    monkeypatch.setattr(live_sessions, "MAX_SAMPLES", 500)
    monkeypatch.setattr(live_sessions, "READ_BYTES_PER_CHECK", 1)
    write_ticks(tmp_path / "s", starved(400)).close()
    session = LiveSession(tmp_path / "s")
    for _ in range(3):  # Each look halves the samples.
        session.look()
    assert sum(len(one) for gpu in session.gpus.values() for one in gpu.series.values()) <= 500
    assert session.mean(0, "power_w", 1e9) is not None


def test_many_samples_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(telemetry_session, "READ_BYTES", 2_000)
    write_ticks(tmp_path / "s", starved(400)).close()
    reader = telemetry_session.SessionReader(tmp_path / "s")
    first = reader.poll(4_000)
    assert 0 < len(first) < 100
    assert first + reader.poll() == telemetry_session.SessionReader(tmp_path / "s").poll()


def test_a_sample_without_increasing_time_is_left_out() -> None:
    series = LiveSeries()
    for time_ns, value in ((10, 1.0), (20, 2.0), (20, 9.0), (15, 9.0)):
        series.add(time_ns, value)
    assert series.latest() == 2.0
    assert series.peak == 2.0


def test_thinning_keeps_order() -> None:
    time_ns = np.arange(10_001, dtype=np.int64)
    thinned_ns, _ = thin(time_ns, np.sin(time_ns / 7.0))
    assert len(thinned_ns) <= MAX_POINTS
    assert (np.diff(thinned_ns) > 0).all()


def test_every_quantity_is_drawn_once_and_only_what_was_measured() -> None:
    line = (np.array([-1.0, 0.0]), np.array([1.0, 2.0]))
    columns = ("gr_active_pct", "util_pct", "sm_active_pct", "power_w", "mem_used_bytes")
    drawn = picture(dict.fromkeys(columns, line), {"power_w": "2 W"}, 10.0, dark=True, period_s=0.3)
    lines = [line for panel in drawn["panels"] for line in panel["lines"]]
    assert len(lines) == len(columns)
    assert lines[-1]["points"] == pytest.approx([-1.0, 2.0**-30, 0.0, 2.0**-29], rel=1e-3)  # GiB
    assert [panel["period"] for panel in drawn["panels"]] == [0.3, None, None, None]  # Activity, SM activity, power, memory.
    assert next(line["now"] for line in lines if line["name"] == "power") == "2 W"
    assert picture({}, {}, 10.0, dark=False)["panels"] == []


def test_lines_have_the_colours_of_the_telemetry_screen() -> None:
    line = (np.array([-1.0, 0.0]), np.array([1.0, 2.0]))
    activity, beside = picture(dict.fromkeys(("gr_active_pct", "sm_active_pct"), line), {}, 10.0, dark=False)["panels"]
    assert [drawn["colour"] for drawn in activity["lines"]] == [QUANTITIES["gr_active_pct"].light]
    assert [drawn["colour"] for drawn in beside["lines"]] == [QUANTITIES["sm_active_pct"].light]
    alone = picture({"sm_active_pct": line}, {}, 10.0, dark=False)["panels"]
    assert [panel["heading"] for panel in alone] == ["GPU at work, %"]
