"""Tests of profiles of whole rounds, such as a rollout and its updates."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.hooked_loop import HookedLoop


@pytest.mark.parametrize(
    ("steps", "long_ms", "ms", "wanted", "taken"),
    [
        (8, 28.0, 3.0, 5, 16),  # two rounds of 49 ms
        (8, 1000.0, 50.0, 5, 8),  # one of 1.35 s
        (8, 4000.0, 50.0, 5, 5),  # too long for a trace
        (8, 4000.0, 50.0, 9, 16),  # as long, but more steps are chosen
        (2, 60.0, 20.0, 5, 6),
        (64, 100.0, 5.0, 5, 5),  # The long step is a small part.
        (64, 200.0, 5.0, 5, 64),
        (65, 400.0, 5.0, 5, 5),  # too rare
        (8, 8.0, 5.0, 5, 5),  # The long step is hardly longer.
        (8, 12.0, 5.0, 5, 5),  # The long step is a small part.
    ],
)
@pytest.mark.usefixtures("several_processes")
@pytest.mark.parametrize("ranks", [1, 2])
def test_complete_rounds_are_profiled(
    tmp_path: Path, ranks: int, steps: int, long_ms: float, ms: float, wanted: int, taken: int
) -> None:
    """A profile contains whole rounds.

    A round is a rollout and then updates. A profile that begins with the second update of a round contains whole rounds
    after its first step.
    """
    of_job = {"ranks": ranks, "ranks_here": ranks}
    loops = [
        HookedLoop(tmp_path, steps=wanted, after_s=2.0, rank=rank if ranks > 1 else None, **of_job) for rank in range(ranks)
    ]
    while not all(len(loop.profiled) == 2 for loop in loops):
        for loop in loops:
            loop.run(1, long_ms if loop.steps % steps == 3 % steps else ms)
        assert loops[0].steps < 900
    (((_, start), (_, stop)), *others) = (loop.profiled for loop in loops)
    assert stop - start == taken + 1
    assert (start % steps == 3 % steps) or taken == wanted
    assert all(other == loops[0].profiled for other in others)


def test_a_profile_waits_for_the_start_of_a_long_round(tmp_path: Path) -> None:
    """The profile waits for long rounds that have hardly begun.

    Two rounds of 1.2 s have begun when the loop has run for long enough. The third shows whether they have a constant
    period.
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
