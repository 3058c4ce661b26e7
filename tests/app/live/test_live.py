"""Tests of the Live screen's sentences and alerts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.app.live import words as live_words
from sawtooth.app.live.series import LiveSeries
from sawtooth.app.live.sessions import LiveSession, LiveSessions
from tests.support.live_ticks import START, STEP, pushed, starved, write_ticks


def test_a_growing_session_shows_the_state_of_the_gpu(tmp_path: Path) -> None:
    writer = write_ticks(tmp_path / "s", starved(100))
    session = LiveSessions(tmp_path).get("s")
    assert session is not None
    assert session.samples == 100
    write_ticks(tmp_path / "s", starved(500), writer=writer, at=100)
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
    assert "for 80\u00a0% of the time" in live_words.sawtooth_sentence(tooth, gpu)
    assert session.mean(0, "gr_active_pct", 10) == pytest.approx(20, abs=1)
    assert session.mean(0, "tensor_active_pct", 10) is None
    writer.close()


PACE = {"k": "pace", "step": 12_340, "p50_ms": 9.0, "p95_ms": 9.6, "per_s": 110.0, "samples": 64, "flops": 2e12}


def test_steps_come_from_step_marks(tmp_path: Path) -> None:
    writer = write_ticks(tmp_path / "s", starved(100))
    writer.write({"m": 100 * STEP, "w": START + 100 * STEP, **PACE})
    writer.write({"m": 100 * STEP, "w": START + 100 * STEP, **PACE, "per_s": "fast"})
    writer.write({"m": 100 * STEP, "w": START + 100 * STEP, **PACE, "p50_ms": -1})
    write_ticks(tmp_path / "s", starved(20), writer=writer, at=101)
    session = LiveSessions(tmp_path).get("s")
    assert session is not None and session.step_rate is not None
    answer = live_words.step_rate_sentence(session, session.gpus[0], session.sawtooth(0))
    # 2 TFLOP per step and 110 steps/s: 220 of an H200's 989.4 dense TFLOP/s
    assert (
        answer is not None
        and answer.replace("\u00a0", " ") == "Step 12,340: median 9.00 ms, 95th percentile 9.60 ms, 7,040 samples/s, MFU 22 %."
    )
    assert session.step_rate.mfu("NVIDIA H200") == pytest.approx(0.2224, abs=1e-4)
    assert session.step_rate.mfu("an unknown GPU") is None
    write_ticks(tmp_path / "s", starved(200), writer=writer, at=121)
    session.look()
    answer = live_words.step_rate_sentence(session, session.gpus[0], None)
    assert answer is not None and answer.endswith("No step has ended for 22.0\u00a0s.")
    writer.close()


def test_without_marks_the_period_gives_the_step(tmp_path: Path) -> None:
    write_ticks(tmp_path / "s", starved(600)).close()
    session = LiveSession(tmp_path / "s")
    session.look()
    assert (
        live_words.step_rate_sentence(session, session.gpus[0], session.sawtooth(0))
        == "About 1.00\u00a0s per step, estimated from the sawtooth."
    )


def test_without_gpu_activity_sm_activity_gives_the_period_and_utilization_the_share(tmp_path: Path) -> None:
    for shown, label in ((0.5, "SM activity"), (0.02, "GPU utilization")):  # Half of the SMs work, or one of fifty.
        folder = tmp_path / f"s{shown}"
        write_ticks(folder, [0.0] * 2).close()
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
        assert label in live_words.sawtooth_sentence(tooth, gpu)


def test_a_busy_and_an_idle_gpu_have_no_sawtooth(tmp_path: Path) -> None:
    for value, words in ((97.0, "is at work 97\u00a0% of the last"), (0.0, "does nothing in the last")):
        folder = tmp_path / f"s{value:.0f}"
        write_ticks(folder, [value] * 200).close()
        session = LiveSessions(tmp_path).get(folder.name)
        assert session is not None
        tooth = session.sawtooth(0)
        assert tooth is not None
        assert tooth.period_s is None
        assert words in live_words.sentence(session, session.gpus[0], tooth, live=True)
        assert "No sawtooth" in live_words.sawtooth_sentence(tooth, session.gpus[0])


def test_alerts_name_nearly_full_memory_and_throttled_clocks(tmp_path: Path) -> None:
    write_ticks(tmp_path / "s", [90.0] * 30).close()
    session = LiveSession(tmp_path / "s")
    session.look()
    gpu = session.gpus[0]
    assert session.alerts() == []
    after = START + 31 * STEP
    gpu.series["mem_used_bytes"].add(after, 97e9)
    (memory,) = gpu.alerts()
    assert memory == "GPU 0 has 97 % of its memory in use: 2.79 GiB of 93.1 GiB are left."
    gpu.series["mem_used_bytes"].add(after + 1, 10e9)
    mask = gpu.series.setdefault("clock_event_mask", LiveSeries())
    mask.add(after, 0x40)
    assert gpu.alerts() == []  # The clock is as fast as before, so the reason costs nothing.
    gpu.series["clock_sm_mhz"].add(after, 1200)
    (held,) = gpu.alerts()
    assert (
        held
        == "GPU 0 is throttled by hardware thermal slowdown: its SM clock is 1200 MHz and has been 1980 MHz in this session."
    )
    gpu.series["gr_active_pct"].add(after, 0.0)
    assert gpu.alerts() == []  # Idle GPUs lower their clocks by themselves.
    gpu.lost = True
    assert "no longer answers" in gpu.alerts()[0]


def test_processes_are_listed_by_gpu_largest_first(tmp_path: Path) -> None:
    tick = {
        "k": "tick",
        "m": 0,
        "w": START,
        "g": [[50.0, 200.0]],
        "p": [[0, 7, 2**30, "idle"], [0, 8, 3 * 2**30, "train"], [3, 9, 1, "x"]],
    }
    pushed(tmp_path / "p", {}, [tick])
    session = LiveSessions(tmp_path).get("p")
    assert session is not None
    assert live_words.memory_sentence(session.gpus[0]).replace("\u00a0", " ") == "train 3.00 GiB, idle 1.00 GiB"
