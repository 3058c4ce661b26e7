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
