"""Tests of an agent with the MCP tools. It finds the planted problem and the gain of five recordings."""

from __future__ import annotations

import pytest

from tests.counterparts import agent

pytestmark = pytest.mark.slow


def test_the_tools_name_the_planted_problem_and_the_gain() -> None:
    for (name, change), answer in zip(agent.TASKS.items(), agent.answers(), strict=True):
        assert change in answer.proposed, (name, answer.proposed)
        assert isinstance(answer.predicted, dict), (name, answer.predicted)
        assert answer.predicted["low_ms"] <= answer.predicted["after_ms"] < answer.report["step"]["ms"], name
        # The prediction is within 25 % of the stopwatch after the fix, which the tools do not know.
        assert answer.predicted["after_ms"] == pytest.approx(answer.measured_after_ms, rel=0.25), name


def test_a_gain_that_the_trace_cannot_show_is_refused_with_a_reason() -> None:
    (answer,) = agent.answers((agent.NOT_PREDICTED,))
    assert "persistent_workers" in answer.proposed
    assert isinstance(answer.predicted, str) and "cannot be predicted" in answer.predicted
