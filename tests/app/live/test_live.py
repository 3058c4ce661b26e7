"""Tests of the Live screen's numbers: bounded series, growing sessions, sentences and alarms."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from sawtooth.app.charts.live import picture
from sawtooth.app.live import sessions as live_sessions
from sawtooth.app.live import words as live_words
from sawtooth.app.live.info import FRESH_SECONDS, session_info, sessions
from sawtooth.app.live.series import BUCKETS, POINTS_MOST, SAMPLES_MOST, WINDOW_NS, LiveSeries, thinned
from sawtooth.app.live.sessions import CATCH_UP_BYTES, LiveSession, LiveSessions
from sawtooth.app.server.local_sampler import LocalSampler, replay_command
from sawtooth.ingest.sampler.nvml.fields import COLUMNS
from sawtooth.ingest.sampler.segments import SegmentWriter
from sawtooth.ingest.telemetry import session as telemetry_session
from tests.support.paths import SAMPLES
from tests.support.sessions import read_session

START = 1_800_000_000_000_000_000
STEP = 100_000_000


def write(
    folder: Path, values: list[float], *, gpus: int = 1, writer: SegmentWriter | None = None, at: int = 0, end: bool = False
):
    """Write ticks whose GPU activity is ``values``; other columns are constants."""
    devices = [{"device": d, "name": "NVIDIA H200", "uuid": f"GPU-{d}", "memory_bytes": 100e9} for d in range(gpus)]
    meta = {"v": 1, "session": folder.name, "host": "node7", "started_m": 0, "started_w": START, "interval_ns": STEP}
    writer = writer or SegmentWriter(folder, {**meta, "columns": list(COLUMNS), "devices": devices, "name": "my job", "pid": 1})
    for i, value in enumerate(values, start=at):
        given = {"gr_active_pct": value, "power_w": 100 + value, "clock_sm_mhz": 1980, "mem_used_bytes": 40e9}
        row = [given.get(column) for column in COLUMNS]
        m = i * STEP
        writer.write({"k": "tick", "m": m, "w": START + m, "g": [row] * gpus})
    if end:
        writer.write({"k": "end", "m": (at + len(values)) * STEP, "w": START, "reason": "time"})
    writer.sync(0)
    return writer


def starved(samples: int, period: int = 10, busy: int = 2) -> list[float]:
    """Return a GPU that works ``busy`` of each ``period`` samples."""
    return [100.0 if i % period < busy else 0.0 for i in range(samples)]


def test_a_growing_session_shows_the_state_of_the_gpu(tmp_path: Path) -> None:
    writer = write(tmp_path / "s", starved(100))
    session = LiveSessions(tmp_path).get("s")
    assert session is not None
    assert session.samples == 100
    write(tmp_path / "s", starved(500), writer=writer, at=100)
    session.look()
    assert session.samples == 600
    gpu = session.gpus[0]
    tooth = session.sawtooth(0)
    assert tooth is not None
    assert tooth.period_s == pytest.approx(1.0, rel=0.02)  # 10 samples of 0.1 s
    assert (
        live_words.sentence(session, gpu, tooth, live=True)
        == "GPU 0 works 20\u00a0% of each 1.00\u00a0s and waits for the rest."
    )
    assert "duty 20\u00a0%" in live_words.sawtooth_sentence(tooth, gpu)
    assert session.mean(0, "gr_active_pct", 10) == pytest.approx(20, abs=1)
    assert session.mean(0, "tensor_active_pct", 10) is None
    writer.close()


PACE = {"k": "pace", "step": 12_340, "p50_ms": 9.0, "p95_ms": 9.6, "per_s": 110.0, "samples": 64, "flops": 2e12}


def test_a_long_session_is_read_from_its_newest_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, size in ((9998, 100), (9999, 60), (10000, 100)):
        (tmp_path / f"samples-{number}.jsonl").write_bytes(bytes(size))
    monkeypatch.setattr(live_sessions, "CATCH_UP_BYTES", 130)
    assert live_sessions._first_segment(tmp_path) == (10000, 160)


def test_steps_come_from_step_marks(tmp_path: Path) -> None:
    writer = write(tmp_path / "s", starved(100))
    writer.write({"m": 100 * STEP, "w": START + 100 * STEP, **PACE})
    writer.write({"m": 100 * STEP, "w": START + 100 * STEP, **PACE, "per_s": "fast"})
    writer.write({"m": 100 * STEP, "w": START + 100 * STEP, **PACE, "p50_ms": -1})
    write(tmp_path / "s", starved(20), writer=writer, at=101)
    session = LiveSessions(tmp_path).get("s")
    assert session is not None and session.step_rate is not None
    said = live_words.step_rate_sentence(session, session.gpus[0], session.sawtooth(0))
    # 2 TFLOP a step, 110 steps a second: 220 of an H200's 989.4 dense TFLOP/s
    assert (
        said is not None
        and said.replace("\u00a0", " ") == "Step 12,340: median 9.00 ms, 95th percentile 9.60 ms, 7,040 samples/s, MFU 22 %."
    )
    assert session.step_rate.mfu("NVIDIA H200") == pytest.approx(0.2224, abs=1e-4)
    assert session.step_rate.mfu("an unknown GPU") is None
    write(tmp_path / "s", starved(200), writer=writer, at=121)
    session.look()
    said = live_words.step_rate_sentence(session, session.gpus[0], None)
    assert said is not None and said.endswith("No step has ended for 22.0\u00a0s.")
    writer.close()


def test_without_marks_the_period_gives_the_step(tmp_path: Path) -> None:
    write(tmp_path / "s", starved(600)).close()
    session = LiveSession(tmp_path / "s")
    session.look()
    assert (
        live_words.step_rate_sentence(session, session.gpus[0], session.sawtooth(0))
        == "About 1.00\u00a0s per step, estimated from the sawtooth."
    )


def test_without_gpu_activity_sm_activity_gives_the_period_and_utilization_the_share(tmp_path: Path) -> None:
    for shown, label in ((0.5, "SM activity"), (0.02, "GPU utilization")):  # half of the SMs work, or one in fifty
        folder = tmp_path / f"s{shown}"
        write(folder, [0.0] * 2).close()
        session = LiveSession(folder)
        session.look()
        gpu = session.gpus[0]
        del gpu.series["gr_active_pct"]
        for i, value in enumerate(starved(600)):
            for column, scale in (("sm_active_pct", shown), ("util_pct", 1.0)):
                gpu.series.setdefault(column, LiveSeries()).add(START + (i + 2) * STEP, scale * value)
        session.last_ns = START + 601 * STEP
        tooth = session.sawtooth(0)
        assert tooth is not None
        assert "works 20\u00a0% of each 1.00\u00a0s" in live_words.sentence(session, gpu, tooth, live=True)
        assert f"Sawtooth in {label}" in live_words.sawtooth_sentence(tooth, gpu)


def test_a_busy_and_an_idle_gpu_have_no_sawtooth(tmp_path: Path) -> None:
    for value, words in ((97.0, "is at work 97\u00a0% of the last"), (0.0, "does nothing in the last")):
        folder = tmp_path / f"s{value:.0f}"
        write(folder, [value] * 200).close()
        session = LiveSessions(tmp_path).get(folder.name)
        assert session is not None
        tooth = session.sawtooth(0)
        assert tooth is not None
        assert tooth.period_s is None
        assert words in live_words.sentence(session, session.gpus[0], tooth, live=True)
        assert "No sawtooth" in live_words.sawtooth_sentence(tooth, session.gpus[0])


def test_alerts_name_nearly_full_memory_and_throttled_clocks(tmp_path: Path) -> None:
    write(tmp_path / "s", [90.0] * 30).close()
    session = LiveSession(tmp_path / "s")
    session.look()
    gpu = session.gpus[0]
    assert session.alerts() == []
    after = START + 31 * STEP
    gpu.series["mem_used_bytes"].add(after, 97e9)
    (memory,) = gpu.alerts()
    assert memory == "GPU 0 has 97 % of its memory in use: 3.0 of 100 GB are left."
    gpu.series["mem_used_bytes"].add(after + 1, 10e9)
    mask = gpu.series.setdefault("clock_event_mask", LiveSeries())
    mask.add(after, 0x40)
    assert gpu.alerts() == []  # the clock is as fast as ever: the reason costs nothing
    gpu.series["clock_sm_mhz"].add(after, 1200)
    (held,) = gpu.alerts()
    assert (
        held
        == "GPU 0 is throttled by hardware thermal slowdown: its SM clock is 1200 MHz and has been 1980 MHz in this session."
    )
    gpu.series["gr_active_pct"].add(after, 0.0)
    assert gpu.alerts() == []  # idle GPUs lower their clocks by themselves
    gpu.lost = True
    assert "no longer answers" in gpu.alerts()[0]


def test_the_list_distinguishes_live_ended_and_silent_sessions(tmp_path: Path) -> None:
    write(tmp_path / "live", [1.0] * 3).close()
    write(tmp_path / "done", [1.0] * 3, end=True).close()
    (tmp_path / "broken").mkdir()
    (tmp_path / ".hidden").mkdir()
    found = {info.id: info for info in sessions(tmp_path)}
    assert set(found) == {"live", "done"}
    now = time.time()
    assert found["live"].live(now)
    assert not found["live"].live(now + FRESH_SECONDS + 5)
    assert not found["done"].live(now)
    assert sessions(tmp_path)[0].id == "live"
    assert session_info(tmp_path / "broken") is None
    assert LiveSessions(tmp_path).get("broken") is None
    assert LiveSessions(tmp_path).get("../done") is None


def test_a_long_session_is_read_near_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = write(tmp_path / "s", [1.0] * 50)
    for part in range(1, 4):
        writer.start_segment(part * 50 * STEP, START + part * 50 * STEP)
        write(tmp_path / "s", [2.0] * 50, writer=writer, at=part * 50)
    writer.close()
    assert CATCH_UP_BYTES > 1 << 20
    size = (tmp_path / "s" / "samples-0004.jsonl").stat().st_size
    monkeypatch.setattr("sawtooth.app.live.sessions.CATCH_UP_BYTES", 2 * size + 100)
    session = LiveSession(tmp_path / "s")
    session.look()
    assert session.samples == 100
    assert session.left_out_bytes > 0


@pytest.mark.parametrize("samples", [10, 5_000, 60_000])
def test_lines_are_short_and_keep_every_extreme(samples: int) -> None:
    series, rng = LiveSeries(), np.random.default_rng(1)
    values = rng.uniform(10, 20, samples)
    values[samples // 3], values[samples // 2] = 99.0, 1.0
    for i, value in enumerate(values):
        series.add(START + i * STEP, float(value))
    time_ns, drawn = series.line(START)
    assert len(drawn) <= POINTS_MOST + 2
    assert (drawn.max(), drawn.min()) == (99.0, 1.0)
    assert (np.diff(time_ns) >= 0).all()
    recent = series.since(START + (samples - 5) * STEP)[1]
    assert recent.tolist() == values[-5:].tolist()
    assert len(series._time) <= 2 * WINDOW_NS // STEP + 1
    assert len(series._bucket) <= BUCKETS


def test_a_stopped_clock_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A clock that stands still does not fill the memory.

    The sender sets the time, so samples one nanosecond apart never leave the shown window.
    """
    series = LiveSeries()
    for i in range(3 * SAMPLES_MOST):
        series.add(START + i, float(i))
    assert SAMPLES_MOST <= len(series) <= 1.1 * SAMPLES_MOST and series.latest() == 3 * SAMPLES_MOST - 1
    monkeypatch.setattr(live_sessions, "MOST_SAMPLES", 500)
    monkeypatch.setattr(live_sessions, "LOOK_BYTES", 1)
    write(tmp_path / "s", starved(400)).close()
    session = LiveSession(tmp_path / "s")
    for _ in range(3):  # each look halves
        session.look()
    assert sum(len(one) for gpu in session.gpus.values() for one in gpu.series.values()) <= 500
    assert session.mean(0, "power_w", 1e9) is not None


def test_many_samples_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(telemetry_session, "READ_BYTES", 2_000)
    write(tmp_path / "s", starved(400)).close()
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
    kept, _ = thinned(time_ns, np.sin(time_ns / 7.0))
    assert len(kept) <= POINTS_MOST
    assert (np.diff(kept) > 0).all()


def test_the_sampler_starts_once_and_ends_cleanly(tmp_path: Path) -> None:
    recording = SAMPLES / "resnet_starved" / "nvml.jsonl"
    sampler = LocalSampler()
    pid = sampler.start(replay_command(tmp_path, recording))
    try:
        assert sampler.start(replay_command(tmp_path, recording)) == pid
        deadline = time.monotonic() + 30
        while not (found := sessions(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.05)  # another process
        assert found[0].pid == pid
    finally:
        sampler.stop()
    assert sampler.pid is None
    assert sessions(tmp_path)[0].ended


def test_a_sampler_that_cannot_start_says_why(tmp_path: Path) -> None:
    sampler = LocalSampler()
    script = "import sys; sys.exit('sawtooth sample: There is no NVIDIA driver.')"
    sampler.start([sys.executable, "-c", script])
    process = sampler._process
    assert isinstance(process, subprocess.Popen)
    process.wait(20)
    deadline = time.monotonic() + 20
    while sampler.trouble is None and time.monotonic() < deadline:
        time.sleep(0.02)  # another thread hears the child
    assert sampler.trouble == "There is no NVIDIA driver."


def test_every_quantity_is_drawn_once_and_only_what_was_measured() -> None:
    line = (np.array([-1.0, 0.0]), np.array([1.0, 2.0]))
    columns = ("gr_active_pct", "util_pct", "sm_active_pct", "power_w", "mem_used_bytes")
    drawn = picture(dict.fromkeys(columns, line), {"power_w": "2 W"}, 10.0, dark=True, period_s=0.3)
    lines = [line for panel in drawn["panels"] for line in panel["lines"]]
    assert len(lines) == len(columns)
    assert lines[-1]["points"] == [-1.0, 1e-9, 0.0, 2e-9]  # GB
    assert [panel["period"] for panel in drawn["panels"]] == [0.3, None, None]
    assert next(line["now"] for line in lines if line["name"] == "power") == "2 W"
    assert picture({}, {}, 10.0, dark=False)["panels"] == []


def test_processes_are_listed_by_gpu_largest_first(tmp_path: Path) -> None:
    tick = {
        "k": "tick",
        "m": 0,
        "w": START,
        "g": [[50.0, 200.0]],
        "p": [[0, 7, 10**9, "idle"], [0, 8, 3 * 10**9, "train"], [3, 9, 1, "x"]],
    }
    pushed(tmp_path / "p", {}, [tick])
    session = LiveSessions(tmp_path).get("p")
    assert session is not None
    assert live_words.memory_sentence(session.gpus[0]).replace("\u00a0", " ") == "train 3.00 GB, idle 1.00 GB"


def pushed(folder: Path, meta: dict[str, object], records: list[dict[str, object]]) -> None:
    """Write a session as an unknown client with the push token can, with NaN values."""
    folder.mkdir(parents=True)
    (folder / "push.json").write_text("{}")
    whole = {
        "started_m": 0,
        "started_w": START,
        "columns": ["util_pct", "power_w"],
        "devices": [{"device": 0, "name": "G"}],
        **meta,
    }
    (folder / "meta.json").write_text(json.dumps(whole))
    bodies = [json.dumps(record).encode()[:-1] for record in records]
    lines = [b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body)) for body in bodies]
    (folder / "samples-0001.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize("started", [10**30, -(10**18), 1e300])
def test_a_session_with_an_impossible_clock_hides_only_itself(tmp_path: Path, started: float) -> None:
    pushed(tmp_path / "odd", {"started_w": started}, [])
    write(tmp_path / "good", [50.0] * 10).close()
    assert [info.id for info in sessions(tmp_path)] == ["good"]


def test_a_pushed_session_is_not_the_local_sampler(tmp_path: Path) -> None:
    pushed(tmp_path / "p", {"pid": 1}, [])
    info = session_info(tmp_path / "p")
    assert info is not None and info.pid is None


def test_a_quantity_that_no_gpu_reports_is_left_out(tmp_path: Path) -> None:
    def tick(i: int, row: list[object], **more: object) -> dict[str, object]:
        return {"k": "tick", "m": i * STEP, "w": START + i * STEP, "g": [row], **more}

    odd = [math.nan, math.inf, -math.inf, 1e308, -1, 10**400, "x", None, [1]]
    records = [tick(i, [value, value]) for i, value in enumerate(odd)]
    records += [{**tick(50, [50.0, 200.0]), "m": 10**30}, {**tick(51, [50.0, 200.0]), "w": -5}]
    records += [tick(60, [None], s=[[0, "util_pct", [10**30], [5]], [0, "of my own", [1], [5]]]), tick(61, [60.0, 300.0])]
    devices = [{"device": i, "name": "G", "memory_bytes": math.nan} for i in range(500)]
    pushed(tmp_path / "p", {"devices": devices}, records)
    session = LiveSessions(tmp_path).get("p")
    assert session is not None
    assert len(session.gpus) <= 64
    gpu = session.gpus[0]
    assert set(gpu.series) == {"util_pct", "power_w"} and gpu.memory_bytes is None
    assert (gpu.latest("util_pct"), gpu.series["power_w"].peak) == (60.0, 300.0)
    assert session.last_ns == START + 61 * STEP
    said = live_words.sentence(session, gpu, session.sawtooth(0), live=True)
    assert said.replace("\u00a0", " ") == "GPU 0 is at work 60 % of the last 10.0 s."
    assert read_session(tmp_path / "p").columns()["util_pct"].tolist() == [60.0]
