"""Tests of the troughs of a sawtooth: their causes under the profile, in whole nanoseconds.

They also test the number of steps per period.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sawtooth.analysis.intervals import union
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.telemetry.troughs import Troughs, causes_in, steps_of, troughs_of

TOOTH = Sawtooth(0.5, None, 0.2, "high", low=0.0, high=100.0)


def test_causes_inside_troughs() -> None:
    # samples at 10, 20 … 80; low at 30, 40 and 70: troughs (20, 40] and (60, 70]; the window ends at 65
    times, values = np.arange(10, 90, 10), np.array([90.0, 90, 10, 10, 90, 90, 10, 90])
    count, inside = troughs_of(TOOTH, times, values, union([0], [65]))
    assert (count, inside.starts.tolist(), inside.ends.tolist()) == (2, [20, 60], [40, 65])
    # data_wait 15–32 (12 inside), launch_bound 35–38 (3), data_wait 62–80 (3)
    found = causes_in(inside, np.array([15, 35, 62]), np.array([32, 38, 80]), ["data_wait", "launch_bound", "data_wait"])
    assert found == (("data_wait", 15), ("launch_bound", 3))


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=20),
    st.lists(st.integers(0, 900), min_size=2, max_size=20),
)
def test_causes_never_exceed_the_troughs(gaps: list[tuple[int, int]], edges: list[int]) -> None:
    ends = np.cumsum([a + b for a, b in gaps])
    starts = ends - [a for a, _ in gaps]
    inside = union(sorted(edges)[:-1:2], sorted(edges)[1::2][: len(sorted(edges)[:-1:2])])
    found = causes_in(inside, starts, ends, ["a" if k % 2 else "b" for k in range(len(gaps))])
    assert sum(ns for _, ns in found) <= min(inside.total, sum(a for a, _ in gaps))


@pytest.mark.parametrize(
    ("step_ms", "kernel_ms", "reported"),
    [
        (500.0, None, (1, False)),
        (251.0, None, (2, False)),  # 1.99 steps
        (333.0, None, (None, False)),  # 1.50
        (None, 100.0, (2, True)),  # 0.5 s × 40 % = 200 ms of work
        (None, 88.0, (2, True)),  # 2.27: short activity counts as longer than it is.
        (None, 60.0, (3, True)),  # 3.33
        (None, 40.0, (None, True)),  # 5: above three steps, the work does not distinguish neighbouring numbers.
        (None, None, (None, False)),
    ],
)
def test_steps_per_period(step_ms: float | None, kernel_ms: float | None, reported: tuple[int | None, bool]) -> None:
    assert steps_of(TOOTH, 40.0, step_ms, kernel_ms) == reported


def test_without_a_sawtooth_there_are_no_troughs() -> None:
    none = Sawtooth(None, "it stays", None)
    assert troughs_of(none, np.arange(5), np.zeros(5), union([0], [9]))[0] == 0
    assert steps_of(none, 40.0, 5.0, 5.0) == (None, False)


def test_notes_contain_only_known_values() -> None:
    assert Troughs().notes() == ()
    assert "99 %" in Troughs(4, (("data_wait", 99), ("host_sync", 1))).notes()[0]
    assert "2 steps" in Troughs(steps=2, by_work=True).notes()[0]
