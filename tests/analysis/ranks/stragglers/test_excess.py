"""Tests of a rank's excess over its peers, by single gaps of its host."""

from __future__ import annotations

import numpy as np
import pytest

from sawtooth.analysis.ranks.stragglers.excess import longer_by_gap_ns
from sawtooth.analysis.ranks.stragglers.own_time import OwnTime

MS = 1e6


def host(*gaps_ms: float) -> OwnTime:
    """Return a rank whose host has one long gap in each step."""
    longest = {("launch_bound", False): tuple(np.array([ms * MS]) for ms in gaps_ms)}
    return OwnTime(tuple(range(len(gaps_ms))), (), {}, {}, (), (), (), {}, 0.0, longest_ns=longest)


def test_a_stall_by_chance_does_not_raise_a_small_excess_of_all_steps() -> None:
    others = [host(1, 1, 1, 1, 1)]
    assert longer_by_gap_ns("launch_bound", host(3, 3, 3, 3, 3), others, MS) == (pytest.approx(2 * MS), False)
    assert longer_by_gap_ns("launch_bound", host(3, 3, 3, 200, 3), others, MS) == (pytest.approx(2 * MS), False)
    assert longer_by_gap_ns("launch_bound", host(1, 1, 1, 200, 1), others, MS) == (0.0, False)
    assert longer_by_gap_ns("launch_bound", host(1, 200, 1, 200, 1), others, MS)[0] == pytest.approx(398 / 5 * MS)
