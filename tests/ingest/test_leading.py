"""Tests of which of several optimizers makes a loop's steps: periods, ties and ended ones."""

import pytest

from sawtooth.ingest.loop.leading_optimizer import SILENT_GAPS, SILENT_STEPS, LeadingOptimizer, most_frequent_leader

CRITIC, ACTOR = 0, 1


def led(order: list[int]) -> tuple[LeadingOptimizer, list[int]]:
    """Return the loop after ``order``, and the positions that end a step of the loop."""
    loop = LeadingOptimizer()
    return loop, [place for place, optimizer in enumerate(order) if loop.note_step(optimizer)]


def test_the_optimizer_with_the_longer_period_leads() -> None:
    for turn in ([CRITIC] * 5 + [ACTOR], [ACTOR] + [CRITIC] * 5):
        loop, places = led(turn * 20)
        assert loop.number == ACTOR
        assert [place for place in places if place >= 12] == [place for place in range(12, 120) if (turn * 20)[place] == ACTOR]
    loop, places = led([7])
    assert (loop.number, places) == (7, [0])


@pytest.mark.parametrize("turn", [[0, 1], [0, 1, 2], list(range(300)), [0, 1, 1, 0]])
def test_the_first_of_two_equally_frequent_optimizers_leads(turn: list[int]) -> None:
    _, places = led(turn * 10)
    assert [place for place in places if place >= 4 * len(turn)] == [
        place for place in range(4 * len(turn), 10 * len(turn)) if (turn * 10)[place] == 0
    ]


def test_an_ended_optimizer_no_longer_leads() -> None:
    loop, places = led([0] * 5 + [1] * 100)
    assert loop.number == 1 and loop.has_ended(0) and not loop.has_ended(1)
    assert places == [*range(5), *range(5 + SILENT_STEPS, 105)]
    assert loop.steps == len(places)
    # the generator of a GAN; a phase of its critic follows
    rhythm = SILENT_GAPS * 6
    assert led(([0] * 5 + [1]) * 10 + [0] * rhythm)[0].number == 1
    assert led(([0] * 5 + [1]) * 10 + [0] * (rhythm + 1))[0].number == 0
    assert led([0] * 1000 + ([0] * 5 + [1]) * 2)[0].number == 1, "one that came later and steps less often"


def test_marks_belong_to_the_profiled_optimizer_or_the_longest_leading_one() -> None:
    first, second = [(0, "train")] * 100, [(1, "train")] * 1000
    assert most_frequent_leader([*first, *second]) == 1
    assert most_frequent_leader([*first[:50], *[(0, "profile")] * 4, *first[:50], *second]) == 0
    assert (
        most_frequent_leader([*first[:5], *[(0, "profile")] * 2, *[(1, "profile")] * 21, *second, *[(1, "profile")] * 4]) == 1
    )
    assert most_frequent_leader([]) == 0
