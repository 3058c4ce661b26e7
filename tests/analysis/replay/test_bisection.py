"""Tests of bisecting an interval to the point where a condition stops being true."""

from __future__ import annotations

from sawtooth.analysis.replay.bisection import turning_point


def test_each_halving_keeps_the_half_with_the_turning_point() -> None:
    # x < 5 is false at 8, true at 4, and false at 6 and 5.
    assert turning_point(lambda x: x < 5, 0.0, 16.0, halvings=1) == (0.0, 8.0)
    assert turning_point(lambda x: x < 5, 0.0, 16.0, halvings=2) == (4.0, 8.0)
    assert turning_point(lambda x: x < 5, 0.0, 16.0, halvings=4) == (4.0, 5.0)


def test_geometric_bisection_splits_ratios() -> None:
    # x < 3 is true at 1, 2 and √8.
    assert turning_point(lambda x: x < 3, 0.25, 4.0, halvings=2, geometric=True) == (2.0, 4.0)
    low, high = turning_point(lambda x: x < 3, 0.25, 4.0, halvings=3, geometric=True)
    assert round(low**2, 9) == 8.0 and high == 4.0


def test_bisection_without_turning_point_approaches_an_end() -> None:
    tried: list[float] = []
    assert turning_point(lambda x: tried.append(x) or True, 0.0, 1.0, halvings=2) == (0.75, 1.0)
    assert tried == [0.5, 0.75], "neither end is tried"
    assert turning_point(lambda x: False, 0.0, 1.0, halvings=2) == (0.0, 0.25)
