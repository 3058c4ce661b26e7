"""Tests of profiles of whole rounds, such as a rollout and its updates."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.hooked_loop import HookedLoop


@pytest.mark.parametrize(
    ("steps", "long_ms", "short_ms", "wanted_steps", "profiled_steps"),
    [
        (8, 28.0, 3.0, 5, 16),  # Two rounds of 49 ms each.
        (8, 1000.0, 50.0, 5, 8),  # One round of 1.35 s.
        (8, 4000.0, 50.0, 5, 5),  # A round is too long for a trace.
        (8, 4000.0, 50.0, 9, 16),  # The user chose enough steps.
        (2, 60.0, 20.0, 5, 6),
        (64, 100.0, 5.0, 5, 5),  # The long step is a small part.
        (64, 200.0, 5.0, 5, 64),
        (65, 400.0, 5.0, 5, 5),  # Rounds have too many steps.
        (8, 8.0, 5.0, 5, 5),  # The long step is hardly longer.
        (8, 12.0, 5.0, 5, 5),  # The long step is a small part.
    ],
)
@pytest.mark.usefixtures("several_processes")
@pytest.mark.parametrize("ranks", [1, 2])
def test_complete_rounds_are_profiled(
    tmp_path: Path, ranks: int, steps: int, long_ms: float, short_ms: float, wanted_steps: int, profiled_steps: int
) -> None:
    # A round is a rollout and then updates. The profile begins with the second update of a round.
    job = {"ranks": ranks, "ranks_here": ranks}
    loops = [
        HookedLoop(tmp_path, steps=wanted_steps, after_s=2.0, rank=rank if ranks > 1 else None, **job) for rank in range(ranks)
    ]
    while not all(len(loop.profiled) == 2 for loop in loops):
        for loop in loops:
            loop.run(1, long_ms if loop.steps % steps == 3 % steps else short_ms)
        assert loops[0].steps < 900
    (((_, start), (_, stop)), *others) = (loop.profiled for loop in loops)
    assert stop - start == profiled_steps + 1
    assert (start % steps == 3 % steps) or profiled_steps == wanted_steps
    assert all(other == loops[0].profiled for other in others)


def test_a_profile_waits_for_the_start_of_a_long_round(tmp_path: Path) -> None:
    """After 2 s, two rounds of 1.2 s have begun.

    The profile waits for the third, which shows whether the period is constant.
    """
    loop = HookedLoop(tmp_path, after_s=2.0)
    for _ in range(5):
        loop.run(10, 20)
        loop.run(1, 1000)
    assert loop.profiled == [("start", 32), ("stop", 32 + 12)]


def test_a_later_profile_begins_at_the_same_place_of_a_round(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path, every=50)
    for _ in range(60):
        loop.run(1, 28)
        loop.run(7, 3)
    starts = [step for what, step in loop.profiled if what == "start"]
    assert len(starts) > 3 and {step % 8 for step in starts} == {0} and set(np.diff(starts)) == {56}
