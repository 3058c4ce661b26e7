"""Ranks replayed together: what a step of the job is, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from sawtooth.analysis.ranks.coupled import Job, Meetings, Member
from tests.support.replay_traces import problem_of
from tests.support.tiny_trace import TinyTrace


def member(ends: list[float]) -> Member:
    """A rank whose steps end on its GPU at ``ends``, µs."""
    trace, before = TinyTrace(), 0.0
    for end in ends:
        trace.launch((end - 6, end - 4), (end - 2, end))
        trace.step(before, end - 1)
        before = end - 1
    return Member(problem_of(trace), 0, np.array([1, 2], np.int32), 0)


def test_a_step_of_the_job_ends_when_its_last_rank_ends_it() -> None:
    # One rank is ahead before the counted steps and level with the other after: its own steps take 190 and 100, the job's 100 each.
    job = Job([member([10, 200, 300]), member([100, 200, 300])], Meetings(({}, {}), {}, {}))
    assert job.steps_ms() == pytest.approx([0.1, 0.1])
    assert job.waits_ms() == [0.0, 0.0]


def test_ranks_that_count_different_steps_tell_the_longest_of_them() -> None:
    short = member([100, 200])
    job = Job([short, member([100, 250, 400])], Meetings(({}, {}), {}, {}))
    assert job.steps_ms() == pytest.approx([0.15, 0.15])


def with_collectives(calls: list[float]) -> Member:
    """A rank that launches a collective at each of ``calls``, µs into each of three steps of 200 µs."""
    trace = TinyTrace()
    for step in range(3):
        for call in calls:
            at = 200 * step + call
            trace.launch((at, at + 2), (at + 4, at + 8))
        trace.step(200 * step, 200 * (step + 1))
    return Member(problem_of(trace), 0, np.array([1, 2], np.int32), 0)


def together(first: list[float], second: list[float]) -> Job:
    """Two ranks that meet in every collective, each of which takes 4 µs once both have come."""
    members = [with_collectives(first), with_collectives(second)]
    of_op = {int(op): number for number, op in enumerate(members[0].problem.ops.op)}
    return Job(members, Meetings((of_op, of_op), dict.fromkeys(range(6), 4_000), dict.fromkeys(range(6), 2)))


def test_ranks_that_hold_each_other_up_by_turns_all_wait() -> None:
    job = together([20, 120], [50, 100])  # the first waits 30 µs in the first collective, the second 20 in the other
    assert job.waits_ms() == pytest.approx([0.03, 0.02])
    assert job.in_turn_ms() == pytest.approx(0.02)


def test_ranks_that_wait_for_one_of_them_do_not_wait_by_turns() -> None:
    job = together([20, 100], [50, 120])
    assert job.waits_ms() == pytest.approx([0.05, 0.0])
    assert job.in_turn_ms() == 0.0
