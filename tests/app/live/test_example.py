"""Tests of Live without a session, and of the time range for a new session."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.app.live import words
from sawtooth.app.live.example import example
from sawtooth.app.page.live.picture import MIN_SECONDS, picture
from tests.support.paths import SAMPLES

RECORDING = SAMPLES / "resnet_starved" / "nvml.jsonl"


def test_the_bundled_recording_is_a_complete_session() -> None:
    session = example(RECORDING)
    assert session is not None and session.ended == "end of the recording"
    samples = sum('"gpu_util"' in line for line in RECORDING.read_text().splitlines())
    assert session.samples == samples
    tooth = session.sawtooth(0)
    assert "GPU 0 worked " in words.sentence(session, session.gpus[0], tooth, live=False)
    assert tooth is not None and tooth.period_s is not None


def test_a_file_that_is_not_a_recording_is_not_an_example(tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text("{}\n")
    assert example(path) is None


def test_a_picture_shows_the_samples_up_to_its_window() -> None:
    session = example(RECORDING)
    assert session is not None and session.first_ns is not None and session.last_ns is not None
    recorded = (session.last_ns - session.first_ns) / 1e9

    def spans(window_s: float) -> float:
        return picture(session, session.gpus[0], window_s, dark=False, period_s=None)["window"]

    assert 20 < recorded < 60
    assert spans(60.0) == spans(0.0) == pytest.approx(recorded)
    assert spans(20.0) == 20.0
    session_of_a_second = session.first_ns + 10**9
    session.last_ns, complete = session_of_a_second, session.last_ns
    try:
        assert spans(60.0) == MIN_SECONDS
    finally:
        session.last_ns = complete
