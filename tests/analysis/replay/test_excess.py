"""Tests of the run's step after a change, if it is longer than the replay."""

from __future__ import annotations

import pytest

from sawtooth.analysis.replay.edits import WithoutOps
from sawtooth.analysis.replay.excess import MeanStep, applied_to_run

NOW, AFTER = MeanStep(10.0, 2.0, 2.0), MeanStep(8.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("excess_ms", "run_ms", "after_ms"),
    [
        # The excess of 2 ms shrinks in proportion to the GPU's waits, which shrink from 8 to 6 ms.
        (0.0, 12.0, 8.0 + 2.0 * 6.0 / 8.0),
        (1.5, 12.0, 8.0 + 0.5 * 6.0 / 8.0),  # The change first removes 1.5 ms of the excess.
        (3.0, 12.0, 8.0 - 1.0),  # The excess is 2 ms, so the missing 1 ms comes from the waiting of 6 ms.
        (3.0, 10.0, 8.0 - 3.0),  # A run that is as fast as its replay: all 3 ms come from the waiting.
        (3.0, 9.0, 0.9 * (8.0 - 3.0)),  # A run that is faster than its replay: the same, scaled to the run.
        (9.0, 10.0, 2.0),  # At most all waiting disappears; the GPU's work of 2 ms remains.
    ],
)
def test_removed_launches_take_their_part_of_the_runs_excess(excess_ms: float, run_ms: float, after_ms: float) -> None:
    assert applied_to_run(run_ms, NOW, AFTER, [WithoutOps((1,), excess_ms=excess_ms)]) == pytest.approx(after_ms)
