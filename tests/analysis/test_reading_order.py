"""Tests of the order of changes: headline, numbered findings and plan start with the same one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sawtooth.analysis.reading_order import in_reading_order, lead_finding
from sawtooth.analysis.run.model import Explains, Finding
from sawtooth.app.words import advice, headline
from tests.support.actions import act
from tests.support.findings_of import result_of
from tests.support.run_results import run_of

SLOW = [("other_compute", None, 65_700_000, 65.7)]


def finding(rule: str, after_ms: float | None, **more: Any) -> Finding:
    times = (
        {"predicted_step_ms": after_ms, "predicted_high_ms": after_ms + 1, "predicted_speedup": 65.7 / after_ms}
        if after_ms
        else {}
    )
    return Finding(rule, "critical", rule, act(f"Change {rule}."), "medium", **{**times, **more})


def order(*findings: Finding) -> list[str]:
    return [f.rule for f in in_reading_order(replace(run_of(ledger=SLOW), findings=list(findings)), None).findings]


def test_the_most_certain_change_leads_and_sorting_again_keeps_the_order() -> None:
    optimizer, graph = finding("optimizer", 50.0), finding("graph", 10.0)
    assert order(optimizer, graph) == ["graph", "optimizer"] == order(graph, optimizer)
    assert order(finding("optimizer", 30.0), graph) == ["optimizer", "graph"]  # The graph does not gain twice as much.
    needs = replace(graph, needs_first=("optimizer",))
    again = in_reading_order(replace(run_of(ledger=SLOW), findings=[optimizer, needs]), None)
    assert lead_finding(again) is again.findings[0] is optimizer


def test_a_change_that_enables_a_much_larger_one_is_a_part_of_it() -> None:
    graph = replace(finding("graph", 10.0), needs_first=("reads",), enabled_by=("reads",))
    result = in_reading_order(replace(run_of(ledger=SLOW), findings=[finding("reads", 60.0), graph]), None)
    assert [f.rule for f in result.findings] == ["reads", "graph"] and lead_finding(result) is result.findings[1]
    assert headline.headline(result).replace("\xa0", " ") == "Change reads, then change graph: 65.7 → ≈ 10.0 ms"
    gain = advice.gain_text(result, result.findings[0]).replace("\xa0", " ")
    assert gain == "saves ≈ 5.7 ms per step (8.7 %), and makes change 2 possible"


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["boxes_reads", "detr_on_host", "dlrm_reads"])
def test_reads_that_prevent_a_graph_are_a_part_of_it(name: str) -> None:
    """Without these reads alone, a step is 6 to 10 % shorter; as one graph it takes less than a third."""
    result = result_of(name)
    first = lead_finding(result)
    assert first is not None and first.rule == "launch-bound" and first.enabled_by == ("host-waits-for-gpu",)
    assert headline.headline(result).startswith(
        "Take the reads of GPU values out of the step, then launch the step as one CUDA graph: "
    )
    assert [step.rule for step in result.plan[:2]] == ["host-waits-for-gpu", "launch-bound"]


def test_a_larger_gain_comes_before_bounds_and_guesses() -> None:
    bound = finding("overlap", None, ceiling_ms_per_step=5.0)
    assert order(bound, finding("graph", 55.0)) == ["graph", "overlap"]
    assert order(bound, finding("graph", 62.0)) == ["overlap", "graph"]
    guess, doubtful = finding("casts", 60.0), finding("compile", 45.0, predicted_low_ms=40.0)
    guess, doubtful = replace(guess, confidence="low"), replace(doubtful, predicted_high_ms=65.7)
    assert lead_finding(replace(run_of(ledger=SLOW), findings=[guess])) is guess
    assert lead_finding(replace(run_of(ledger=SLOW), findings=[guess, doubtful])) is None


def test_without_a_first_change_hidden_losses_come_before_small_gains() -> None:
    hidden = finding("steps", None, ceiling_ms_per_step=1.0, explains=Explains(topics=frozenset({"hidden"})))
    assert order(finding("small", 65.0), hidden) == ["steps", "small"]


def test_without_a_first_change_the_schedule_of_a_pipeline_comes_before_small_gains() -> None:
    schedule = finding("bubble", None, samples_per_second_times=1.3, explains=Explains(topics=frozenset({"schedule"})))
    assert order(finding("small", 65.0), schedule) == ["bubble", "small"]
    assert order(finding("large", 50.0), schedule) == ["large", "bubble"]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["adam_single", "points_single"])
def test_the_first_change_is_the_same_in_all_outputs(name: str) -> None:
    # The optimizer makes most launches. Its fused form alone saves less than half of the graph's certain saving.
    result = result_of(name)
    first = lead_finding(result)
    assert first is not None and first.rule == "launch-bound"
    assert advice.numbered(result)[0][1] is first and result.plan[0].rule == first.rule
    planned = [step.rule for step in result.plan]
    assert [f.rule for f in result.findings if f.rule in planned] == planned
