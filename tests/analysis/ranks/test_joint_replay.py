"""Tests of the joint replay of ranks: a job's step, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sawtooth.analysis.ranks.joint_replay import JointReplay, MatchedCollectives, Member
from tests.support.replay_traces import problem_of
from tests.support.tiny_trace import TinyTrace


def member(ends: list[float]) -> Member:
    """Return a rank whose steps end on its GPU at ``ends`` µs."""
    trace, before = TinyTrace(), 0.0
    for end in ends:
        trace.launch((end - 6, end - 4), (end - 2, end))
        trace.step(before, end - 1)
        before = end - 1
    return Member(problem_of(trace), 0, np.array([1, 2], np.int32), 0)


def test_a_step_of_the_job_ends_when_its_last_rank_ends_it() -> None:
    # One rank is ahead before the counted steps, and not after them. Its own steps take 190 and 100 µs, the job's 100 µs each.
    job = JointReplay([member([10, 200, 300]), member([100, 200, 300])], MatchedCollectives(({}, {}), {}, {}))
    assert job.steps_ms() == pytest.approx([0.1, 0.1])
    assert job.waits_ms() == [0.0, 0.0]


def test_longest_rank_counts_if_ranks_count_different_steps() -> None:
    short = member([100, 200])
    job = JointReplay([short, member([100, 250, 400])], MatchedCollectives(({}, {}), {}, {}))
    assert job.steps_ms() == pytest.approx([0.15, 0.15])


def with_collectives(calls: list[float], odd: list[float] | None = None) -> Member:
    """Return a rank that launches a collective at each of ``calls`` µs in three steps of 200 µs.

    ``odd`` replaces the calls in the second step.
    """
    trace = TinyTrace()
    for step in range(3):
        for call in odd or calls if step == 1 else calls:
            at = 200 * step + call
            trace.launch((at, at + 2), (at + 4, at + 8))
        trace.step(200 * step, 200 * (step + 1))
    return Member(problem_of(trace), 0, np.array([1, 2], np.int32), 0)


def together(first: list[float], second: list[float], odd: tuple[list[float], list[float]] | None = None) -> JointReplay:
    """Replay two ranks that meet in every collective; each takes 4 µs once both have arrived."""
    first_odd, second_odd = odd or (first, second)
    members = [with_collectives(first, first_odd), with_collectives(second, second_odd)]
    of_op = {int(op): number for number, op in enumerate(members[0].problem.ops.op)}
    return JointReplay(members, MatchedCollectives((of_op, of_op), dict.fromkeys(range(6), 4_000), dict.fromkeys(range(6), 2)))


def test_ranks_that_delay_each_other_in_turn_all_wait() -> None:
    # The first rank waits 30 µs in the first collective, and the second rank 20 µs in the second one.
    job = together([20, 120], [50, 100])
    assert job.waits_ms() == pytest.approx([0.03, 0.02])
    assert job.common_wait_ms(0.2) == pytest.approx(0.02)


def test_ranks_that_wait_for_one_rank_do_not_wait_in_turn() -> None:
    job = together([20, 100], [50, 120])
    assert job.waits_ms() == pytest.approx([0.05, 0.0])
    assert job.common_wait_ms(0.2) == 0.0


def test_ranks_that_lead_alternately_wait_in_turn() -> None:
    """Of the two counted steps, the first rank is 50 µs late in one and the second rank in the other.

    Each waits half of that per step.
    """
    job = together([20, 100], [50, 120], odd=([50, 120], [20, 100]))
    one_step_ms = job.step_ms()
    assert one_step_ms is not None
    assert job.common_wait_ms(one_step_ms) == pytest.approx(0.0, abs=1e-6)
    assert job.common_wait_ms(2 * one_step_ms) == pytest.approx(min(w for w in job.waits_ms() if w is not None), rel=0.05)
    assert job.common_wait_ms(2 * one_step_ms) > 0.01
