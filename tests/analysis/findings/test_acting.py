"""Tests of a policy that acts between updates: other findings must not remove its work."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import acting_passes
from sawtooth.analysis.replay.edits import WithoutCalls
from tests.support.acting_loops import ENVIRONMENT_US, STEPS
from tests.support.findings_of import context_of, result_of


@pytest.mark.parametrize(("name", "passes", "rounds"), [("acts_before_each_update", 2, STEPS), ("plays_in_rounds", 20, 2)])
def test_every_pass_of_the_policy_is_counted(name: str, passes: int, rounds: int) -> None:
    with context_of(name) as context:
        found = acting_passes(context)
    assert found is not None
    # The first pass of the recording follows nothing, so it is not counted.
    assert found.passes in (passes * rounds, passes * rounds - 1)
    assert found.rounds == rounds


@pytest.mark.parametrize("name", ["acts_before_each_update", "plays_in_rounds"])
def test_no_plan_is_shorter_than_the_time_of_acting(name: str) -> None:
    result = result_of(name)
    with context_of(name) as context:
        least_ms = _acting_ms(context)
    environment_ms = ENVIRONMENT_US / 1e3 * (2 if name == "acts_before_each_update" else 20 / 3)
    assert least_ms > environment_ms
    assert all(step.predicted_step_ms >= least_ms for step in result.plan)
    graph = next(finding for finding in result.findings if finding.rule == "launch-bound")
    assert "each update as one CUDA graph" in graph.fix
    assert (graph.predicted_step_ms or least_ms) >= least_ms
    assert result.findings[0].gain_ms < least_ms, "the environment's Python stays"


def _acting_ms(context: RuleContext) -> float:
    found, step_ms = acting_passes(context), context.step_ms
    assert found is not None and step_ms is not None
    without = context.predict_ms([WithoutCalls(tuple(found.calls))])
    assert without is not None
    return step_ms - without


@pytest.mark.parametrize("name", ["plays_in_rounds", "acts_before_each_update"])
def test_reads_of_actions_are_not_advised_away(name: str) -> None:
    with context_of(name) as context:
        found = acting_passes(context)
        assert found is not None
        for finding in result_of(name).findings:
            for edit in finding.edits:
                assert not found.calls.intersection(getattr(edit, "calls", None) or ()), finding.rule
                assert not found.ops.intersection(getattr(edit, "ops", None) or ()), finding.rule
