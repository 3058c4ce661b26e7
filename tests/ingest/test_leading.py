"""Tests of choosing the optimizer whose steps are a loop's steps."""

import pytest

from sawtooth.ingest.loop.leading_optimizer import SILENT_GAPS, SILENT_STEPS, LeadingOptimizer, most_frequent_leader

CRITIC, ACTOR = 0, 1


def note_steps(order: list[int]) -> tuple[LeadingOptimizer, list[int]]:
    """Return a loop after the steps of ``order``, and the positions that end a step of the loop."""
    loop = LeadingOptimizer()
    return loop, [position for position, optimizer in enumerate(order) if loop.note_step(optimizer)]


def test_the_optimizer_with_the_longer_period_leads() -> None:
    for turn in ([CRITIC] * 5 + [ACTOR], [ACTOR] + [CRITIC] * 5):
        loop, positions = note_steps(turn * 20)
        assert loop.number == ACTOR
        assert [position for position in positions if position >= 12] == [
            position for position in range(12, 120) if (turn * 20)[position] == ACTOR
        ]
    loop, positions = note_steps([7])
    assert (loop.number, positions) == (7, [0])


@pytest.mark.parametrize("turn", [[0, 1], [0, 1, 2], list(range(300)), [0, 1, 1, 0]])
def test_the_first_of_two_equally_frequent_optimizers_leads(turn: list[int]) -> None:
    _, positions = note_steps(turn * 10)
    assert [position for position in positions if position >= 4 * len(turn)] == [
        position for position in range(4 * len(turn), 10 * len(turn)) if (turn * 10)[position] == 0
    ]


def test_an_ended_optimizer_no_longer_leads() -> None:
    loop, positions = note_steps([0] * 5 + [1] * 100)
    assert loop.number == 1 and loop.has_ended(0) and not loop.has_ended(1)
    assert positions == [*range(5), *range(5 + SILENT_STEPS, 105)]
    assert loop.steps == len(positions)
    # The generator of a GAN leads until a long phase of the critic.
    silent_steps = SILENT_GAPS * 6
    assert note_steps(([0] * 5 + [1]) * 10 + [0] * silent_steps)[0].number == 1
    assert note_steps(([0] * 5 + [1]) * 10 + [0] * (silent_steps + 1))[0].number == 0
    assert note_steps([0] * 1000 + ([0] * 5 + [1]) * 2)[0].number == 1, (
        "an optimizer that begins later and steps less often leads"
    )


def test_marks_belong_to_the_profiled_optimizer_or_the_longest_leading_one() -> None:
    first, second = [(0, "train")] * 100, [(1, "train")] * 1000
    assert most_frequent_leader([*first, *second]) == 1
    assert most_frequent_leader([*first[:50], *[(0, "profile")] * 4, *first[:50], *second]) == 0
    assert (
        most_frequent_leader([*first[:5], *[(0, "profile")] * 2, *[(1, "profile")] * 21, *second, *[(1, "profile")] * 4]) == 1
    )
    assert most_frequent_leader([]) == 0
