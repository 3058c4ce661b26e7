"""Tests of finding a loop's rounds by the step times."""

import numpy as np
import pytest

from sawtooth.ingest.loop.rounds import find_rounds


def rounds(steps: int, long_ms: float, count: int = 10) -> list[float]:
    """Return the step times in ms of ``count`` rounds, which begin with a long step."""
    return ([long_ms] + [3.0] * (steps - 1)) * count


@pytest.mark.parametrize(
    ("times", "steps"),
    [
        (rounds(8, 28.0), 8),
        (rounds(8, 28.0)[5:-3], 8),  # The first and the last round are incomplete.
        (rounds(2, 9.0), 2),
        (rounds(64, 80.0, count=3), 64),
        (rounds(65, 80.0), None),  # Rounds have too many steps.
        (rounds(8, 28.0, count=2), None),  # Two rounds may be chance.
        (rounds(8, 5.9), None),  # The long step is hardly longer.
        (rounds(8, 9.0), None),  # The long step is a small part of the round.
        ([3.0] * 80, None),
        ([], None),
        ([0.0] * 80, None),
        ([20_000.0, *rounds(8, 28.0)], 8),  # The first step compiles.
        (([28.0] + [3.0, 3.0, 7.0, 3.0] * 2) * 10, 9),  # An update that takes longer.
        ([3.0] * 40 + [28.0] + [3.0] * 7 + [28.0] + [3.0] * 7 + [28.0] + [3.0] * 200, None),  # Three rounds, and none later.
        (
            [ms for steps in (8, 5, 8, 3, 7, 8, 4, 6) * 4 for ms in rounds(steps, 28.0, count=1)],
            None,
        ),  # Rounds of varying length.
    ],
)
def test_a_period_must_repeat(times: list[float], steps: int | None) -> None:
    rhythm = find_rounds(times)
    assert (rhythm and rhythm.steps) == steps
    assert rhythm is None or rhythm.over < max(times)


@pytest.mark.parametrize("seed", range(5))
def test_varying_steps_neither_hide_nor_imitate_rounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = rng.lognormal(0.0, 0.3, 400)
    assert (find_rounds((np.array(rounds(8, 28.0, count=50)) * noise).tolist()) or (None,))[0] == 8
    assert find_rounds((3.0 * rng.lognormal(0.0, 0.8, 400)).tolist()) is None
