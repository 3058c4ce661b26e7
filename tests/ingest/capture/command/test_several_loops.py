"""Tests of choosing the profiled loop of a training with several loops."""

from pathlib import Path

import pytest

from sawtooth.ingest.capture.command.loop_times import MIN_STEPS_BEFORE_PROFILE
from sawtooth.ingest.capture.in_process.profile_cost import MIN_PROFILED_STEPS, cost_messages
from tests.support.hooked_loop import MAIN, WARM_UP, HookedLoop, marks_of


@pytest.mark.parametrize("first", [1, 5, 22, 24, 60])
def test_a_phase_that_ends_does_not_delay_the_profile(tmp_path: Path, first: int) -> None:
    """An example is a search for the learning rate before the training, which has another optimizer."""
    loop = HookedLoop(tmp_path)
    loop.run(first, 50, "search")
    loop.run(200, 50, "training")
    loop.hook.finish()
    begun = [step for what, step in loop.profiled if what == "start"]
    ended = [step for what, step in loop.profiled if what == "stop"]
    assert len(begun) == len(ended) and ended[-1] < first + 100
    (trace,) = tmp_path.glob("trace-*")
    assert trace.suffix == ".json"
    assert ended[-1] - begun[-1] == 4, "the profile has the chosen number of steps, all of one phase"


def test_a_longer_loop_after_the_profiled_one_replaces_it(tmp_path: Path) -> None:
    # The warm-up of 2 s is profiled. The training is profiled as soon as it has run for longer than the warm-up.
    loop = HookedLoop(tmp_path)
    loop.site = WARM_UP
    loop.run(40, 50)
    loop.site = MAIN
    loop.run(39, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"]
    loop.run(100, 50)
    loop.hook.finish()
    assert [what for what, _ in loop.profiled] == ["start", "stop"] * 2
    assert len(list(tmp_path.glob("trace-*"))) == 1
    marks = marks_of(tmp_path)
    assert [mark["at"] for mark in marks if "at" in mark] == [["train.py:40"], ["train.py:55"]]
    assert {mark.get("l", 0) for mark in marks[:40]} == {0} and {mark["l"] for mark in marks[40:]} == {1}
    assert sum(mark["p"] == "profile" for mark in marks[40:]) == 4


def test_a_loop_that_ended_with_its_profile_counts_with_its_length(tmp_path: Path) -> None:
    """The profile of a warm-up of 5 s ends with the warm-up.

    The training is profiled after 5 s, and not after 20 steps.
    """
    loop = HookedLoop(tmp_path)
    loop.site = WARM_UP
    loop.run(MIN_STEPS_BEFORE_PROFILE + 5, 200)
    loop.site = MAIN
    loop.run(95, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"]
    loop.run(10, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"] * 2


def test_a_short_loop_after_the_profiled_one_and_its_return_are_not_profiled(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)
    for _ in range(3):
        loop.site = WARM_UP
        loop.run(60, 50)
        loop.site = MAIN
        loop.run(50, 50)
    assert [what for what, _ in loop.profiled] == ["start", "stop"]


@pytest.mark.parametrize("next_loop", [0, 5, 100])
@pytest.mark.parametrize("whole_steps", [MIN_PROFILED_STEPS - 1, MIN_PROFILED_STEPS])
def test_a_profile_whose_loop_ends_is_kept_if_it_has_enough_steps(tmp_path: Path, whole_steps: int, next_loop: int) -> None:
    """A profile with three whole steps stays if its loop ends. The profile of a longer loop replaces it."""
    loop = HookedLoop(tmp_path, steps=5)
    loop.site = WARM_UP
    loop.run(MIN_STEPS_BEFORE_PROFILE + 1 + whole_steps + 1, 50)
    loop.site = MAIN
    loop.run(next_loop, 50)
    loop.hook.finish()
    assert [what for what, _ in loop.profiled] == ["start", "stop"] * (2 if next_loop == 100 else 1)
    stays = whole_steps == MIN_PROFILED_STEPS
    assert len(list(tmp_path.glob("trace-*"))) == (1 if stays or next_loop == 100 else 0)
    messages = (
        [f"The profile ended after {whole_steps} of 5 steps, because the loop ended."] if stays and next_loop < 100 else []
    )
    assert cost_messages(tmp_path) == messages


def test_a_profile_is_cancelled_if_another_loop_begins(tmp_path: Path) -> None:
    loop = HookedLoop(tmp_path)
    loop.site = WARM_UP
    loop.run(MIN_STEPS_BEFORE_PROFILE + 2, 50)
    assert loop.profiled == [("start", MIN_STEPS_BEFORE_PROFILE)]
    loop.site = MAIN
    loop.run(100, 50)
    loop.hook.finish()
    marks = [mark for mark in marks_of(tmp_path) if mark["p"] == "profile"]
    assert {mark["l"] for mark in marks[-4:]} == {1}
