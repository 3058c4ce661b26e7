"""Tests of steps in the timeline's picture: they arrive unchanged in every encoding."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from sawtooth.analysis.tables.timeline import Lane, TimelineSpan
from sawtooth.app.page.timeline import tracks
from tests.support.sent_steps import written_out

STEPS: Any = vars(tracks.steps)["__wrapped__"]  # The function without its cache.
ROWS: list[tuple[int, int, str, bool, Any]] = [
    (1_005, 1_010, "step#8", True, None),
    (1_010, 1_030, "step#9", True, None),
    (1_028, 1_040, "step#10", True, None),  # Begins before the previous one ends.
    (1_050, 1_060, "step#12", True, None),
    (1_060, 1_061, "step#007", True, None),
    (1_061, 1_062, "step#008", False, "cut off"),
    (1_062, 1_063, "step#9", False, "cut off"),
    (1_063, 1_064, "step#10", False, float("nan")),
    (1_064, 1_065, "", True, None),
    (1_065, 1_066, "12345678901234567890", True, None),
]


@pytest.mark.parametrize("many", range(len(ROWS) + 1))
def test_steps_survive_encoding(many: int) -> None:
    columns = ["start_ns", "end_ns", "name", "counted", "excluded_because"]
    rank = SimpleNamespace(steps=pd.DataFrame(ROWS[:many], columns=columns).astype({"start_ns": "int64", "end_ns": "int64"}))
    sent = STEPS(rank, TimelineSpan(1_000, 2_000))
    assert written_out(sent) == [
        (start - 1_000, end - 1_000, name + (f" (not counted: {why})" if isinstance(why, str) else ""), counted)
        for start, end, name, counted, why in ROWS[:many]
    ]


def test_thousands_of_steps_are_encoded_briefly() -> None:
    rows = [(i * 100, i * 100 + 100, f"ProfilerStep#{i}", True, None) for i in range(8_000)]
    rank = SimpleNamespace(steps=pd.DataFrame(rows, columns=["start_ns", "end_ns", "name", "counted", "excluded_because"]))
    sent = STEPS(rank, TimelineSpan(0, 800_000))
    assert sent["names"] == [[8_000, "ProfilerStep#", 0, None]]
    assert len(sent["times"]) < 8 * 8_000


def test_a_nearly_idle_thread_is_marked_as_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of 1 s the pin-memory thread calls the runtime for 1 ms. The step's threads are never quiet.
    ms = 1_000_000
    lanes = [
        Lane("calls", 0, 1, 9, 4 * ms),
        Lane("calls", 1, 1, 9, 6 * ms),
        Lane("calls", 2, 1, 9, ms),
        Lane("python", 2, 1, 9, ms),
    ]
    monkeypatch.setattr(tracks.views, "summed", lambda recording: None)
    monkeypatch.setattr(tracks.views, "lanes", lambda recording, device: (lanes, {}, {0}))
    monkeypatch.setattr(tracks.views, "extent", lambda recording: TimelineSpan(0, 1000 * ms))
    shown = {lane["id"]: lane.get("quiet", False) for lane in tracks._lanes(None, "r")}
    assert shown == {"calls-1": False, "calls-2": True, "python-2": True, "calls-0": False}
