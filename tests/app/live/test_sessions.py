"""Tests of the list of live sessions, of pushed sessions, and of the local sampler."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sawtooth.app.live import sessions as live_sessions
from sawtooth.app.live import words as live_words
from sawtooth.app.live.info import FRESH_SECONDS, session_info, sessions
from sawtooth.app.live.sessions import CATCH_UP_BYTES, LiveSession, LiveSessions
from sawtooth.app.server.local_sampler import LocalSampler, replay_command
from tests.support.live_ticks import START, STEP, pushed, write_ticks
from tests.support.paths import SAMPLES
from tests.support.sessions import read_session


def test_a_long_session_is_read_from_its_newest_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, size in ((9998, 100), (9999, 60), (10000, 100)):
        (tmp_path / f"samples-{number}.jsonl").write_bytes(bytes(size))
    monkeypatch.setattr(live_sessions, "CATCH_UP_BYTES", 130)
    assert live_sessions._first_segment(tmp_path) == (10000, 160)


def test_the_list_distinguishes_live_ended_and_silent_sessions(tmp_path: Path) -> None:
    write_ticks(tmp_path / "live", [1.0] * 3).close()
    write_ticks(tmp_path / "done", [1.0] * 3, end=True).close()
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
    writer = write_ticks(tmp_path / "s", [1.0] * 50)
    for part in range(1, 4):
        writer.start_segment(part * 50 * STEP, START + part * 50 * STEP)
        write_ticks(tmp_path / "s", [2.0] * 50, writer=writer, at=part * 50)
    writer.close()
    assert CATCH_UP_BYTES > 1 << 20
    size = (tmp_path / "s" / "samples-0004.jsonl").stat().st_size
    monkeypatch.setattr("sawtooth.app.live.sessions.CATCH_UP_BYTES", 2 * size + 100)
    session = LiveSession(tmp_path / "s")
    session.look()
    assert session.samples == 100
    assert session.left_out_bytes > 0


def test_the_sampler_starts_once_and_ends_cleanly(tmp_path: Path) -> None:
    recording = SAMPLES / "resnet_starved" / "nvml.jsonl"
    sampler = LocalSampler()
    pid = sampler.start(replay_command(tmp_path, recording))
    try:
        assert sampler.start(replay_command(tmp_path, recording)) == pid
        deadline = time.monotonic() + 30
        while not (found := sessions(tmp_path)) and time.monotonic() < deadline:
            time.sleep(0.05)  # The sampler is another process.
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
        time.sleep(0.02)  # Another thread reads the child's output.
    assert sampler.trouble == "There is no NVIDIA driver."


@pytest.mark.parametrize("started", [10**30, -(10**18), 1e300])
def test_a_session_with_an_impossible_clock_hides_only_itself(tmp_path: Path, started: float) -> None:
    pushed(tmp_path / "odd", {"started_w": started}, [])
    write_ticks(tmp_path / "good", [50.0] * 10).close()
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
    answer = live_words.sentence(session, gpu, session.sawtooth(0), live=True)
    assert answer.replace("\u00a0", " ") == "GPU 0 is at work 60 % of the last 10.0 s."
    assert read_session(tmp_path / "p").columns()["util_pct"].tolist() == [60.0]
