"""Tests of the plan: a fix gains only time that earlier fixes left, and no kernel counts twice.

Changes without a reliable prediction are left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.analysis.findings.plan import plan_of, with_earlier_uncertainty
from sawtooth.analysis.metrics.reading import Reading, missing
from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.edits import AsGraph, ScaledOps, TimedOps
from sawtooth.analysis.replay.whatif import GPU_LIMITED_STEP_DIFFERENCE, WhatIf
from sawtooth.analysis.run.model import NO_GAIN, Explains, Finding, PlanStep
from sawtooth.analysis.run_analysis import analyse, whatif_of
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.app.words import advice as words
from sawtooth.ingest.schema import DataFolder
from tests.support.actions import act
from tests.support.by_hand import ADDS, analysed
from tests.support.chrome_trace import ChromeTrace, matmul_loop


@pytest.fixture
def loop(tmp_path: Path):
    """Return a loop whose replayed step of 741 µs has 600 µs of product and 100 µs of addition.

    The rest of the step waits for the host.
    """
    library = Library(DataFolder(tmp_path / "data"))
    run = ingest_into_runs(library.folder, [(matmul_loop(step_us=760).write(tmp_path / "t.json"), "t.json")]).runs[0]
    result = analyse(run, library)
    with library.open(result.lead.recording_id) as recording:
        whatif = whatif_of(recording, result.lead)
    library.close()
    step = Reading(whatif.step_ms())
    return result, whatif, BestStepTime("profile", step, step, missing("Not in this test."), step.value)


def finding(rule, *edits, severity="warning", confidence="high"):
    return Finding(rule, severity, f"{rule} costs time", act("Change it."), confidence, edits=edits)


def products(whatif: WhatIf) -> tuple[int, ...]:
    return tuple(whatif.problem.ops.op[whatif.problem.ops.dur >= 500_000].tolist())


def test_two_ways_to_a_faster_kernel_count_once(loop):
    _, whatif, best = loop
    ops = products(whatif)
    half, third = ScaledOps(ops, 0.5, 0.45, 0.55), ScaledOps(ops, 1 / 3, 0.3, 0.4)
    assert whatif.predict_ms(best, [half, third]) == whatif.predict_ms(best, [third]) == whatif.predict_ms(best, [third, half])
    timed = TimedOps(ops, (10_000,) * len(ops))
    assert whatif.predict_ms(best, [half, timed]) == whatif.predict_ms(best, [timed])


def test_each_fix_is_predicted_after_the_earlier_ones_and_guesses_are_left_out(loop):
    _, whatif, best = loop
    ops = products(whatif)
    graph, half = finding("graph", AsGraph()), finding("half", ScaledOps(ops, 0.5, 0.45, 0.55))
    same = finding("same", ScaledOps(ops, 0.6, 0.55, 0.65))
    guess = finding("guess", ScaledOps(ops, 0.1, 0.1, 0.1), severity="info", confidence="low")
    plan = plan_of(whatif, best, [guess, graph, half, same, finding("no edit")])
    assert [step.rule for step in plan] == ["graph", "half"]
    assert [step.before_ms for step in plan] == [best.ms, plan[0].predicted_step_ms]
    # As one graph, the step is its 700 µs of kernels, 0.1 µs apart. With half of the product, it is the host's time between two graphs.
    assert plan[0].predicted_step_ms == pytest.approx(0.7001, rel=1e-6)
    assert 0.4 < plan[1].predicted_step_ms < 0.7
    assert plan[1].predicted_step_ms == whatif.predict_ms(best, [AsGraph(), ScaledOps(ops, 0.5, 0.45, 0.55)])
    assert all(step.predicted_low_ms < step.predicted_step_ms < step.predicted_high_ms for step in plan)


def test_the_first_step_of_the_plan_has_the_prediction_of_its_finding(loop):
    # Without this, one change would have two numbers: on its card, and in the plan together with another card's edits.
    _, whatif, best = loop
    graph = replace(finding("graph", AsGraph()), explains=Explains(topics=frozenset({"cuda_graph"})))
    compiled = replace(finding("chains", ScaledOps(products(whatif), 0.5, 0.45, 0.55)), explains=Explains(sets=("compile",)))
    first, then = plan_of(whatif, best, [graph, compiled])
    between = whatif.range_of_another_run_ms(best, graph.edits, whatif.predict_range_ms(best, graph.edits))
    assert first == PlanStep("graph", best.ms, whatif.predict_ms(best, graph.edits), *between)
    assert (then.rule, then.predicted_step_ms) == ("chains", whatif.predict_ms(best, [*graph.edits, *compiled.edits]))


def test_preparation_of_a_graph_is_a_step_of_the_plan(loop):
    _, whatif, best = loop
    waits = finding("waits")
    graph = replace(finding("graph", AsGraph()), needs_first=("waits",))
    # This change comes later, because the graph already contains most of the step.
    (alone,) = plan_of(whatif, best, [graph, waits])
    needed, then = plan_of(whatif, best, [waits, graph])
    assert needed == PlanStep("waits", best.ms, best.ms, best.ms, best.ms) and needed.prepares
    assert then == alone and not then.prepares
    half = finding("half", ScaledOps(products(whatif), 0.5, 0.45, 0.55))
    steps = plan_of(whatif, best, [waits, graph, half])
    assert [step.rule for step in steps] == ["waits", "graph", "half"], "each before what it makes possible, and once"
    enabled = replace(graph, needs_first=("half",), enabled_by=("half",))
    steps = plan_of(whatif, best, [half, enabled])  # After the graph, the first change would save time.
    assert [step.rule for step in steps] == ["half", "graph"] and steps[0].prepares


def test_a_later_step_includes_the_uncertainty_of_earlier_ones():
    # A step of 10 ms may take from 8 to 20 ms. A twentieth of that, replayed to within a percent, is as uncertain, but not longer than the step before it.
    first = PlanStep("loop", 100.0, 10.0, 8.0, 20.0)
    assert with_earlier_uncertainty(first, [], 0.3) == first
    second = with_earlier_uncertainty(PlanStep("graph", 10.0, 0.5, 0.495, 0.505), [first], 0.3)
    assert (second.predicted_low_ms, second.predicted_high_ms) == pytest.approx((0.4, 1.0))
    wider = with_earlier_uncertainty(PlanStep("python", 0.5, 0.45, 0.3, 5.0), [first, second], 0.3)
    assert (wider.predicted_low_ms, wider.predicted_high_ms) == pytest.approx((0.3, 1.0))
    busy = with_earlier_uncertainty(PlanStep("graph", 10.0, 0.5, 0.495, 0.505), [first], 0.45)
    assert busy.predicted_low_ms == 0.45, "the GPU's work that is left"


def test_a_change_without_gain_is_tried_again_after_the_others(loop):
    _, whatif, best = loop
    half, graph = finding("half", ScaledOps(products(whatif), 0.5, 0.45, 0.55)), finding("graph", AsGraph())
    assert plan_of(whatif, best, [half]) == ()  # The host limits the step.
    assert [step.rule for step in plan_of(whatif, best, [half, graph])] == ["graph", "half"]


def test_without_a_replay_there_is_no_plan_and_a_plan_reads_in_order(loop):
    result, whatif, best = loop
    assert plan_of(None, best, [finding("graph", AsGraph())]) == ()
    graph, half = finding("graph", AsGraph()), finding("half", ScaledOps(products(whatif), 0.5, 0.45, 0.55))
    planned = replace(result, findings=[graph, half], plan=plan_of(whatif, best, [graph, half]))
    first, then = words.plan_lines(planned)
    assert first.startswith("Change it: 741") and then.startswith("Change it: 700")
    assert "per step with 2 changes" in words.plan_title(planned)
    assert words.plan_title(replace(planned, plan=())) is None


def test_no_plan_is_faster_than_its_advised_workers(tmp_path: Path) -> None:
    # A step of 42 ms loads for 40 of them in its own process. Eight workers, a little slower together, need 6.1 ms of
    # each step, however the rest is launched.
    trace = ChromeTrace()
    for at in trace.each_step(5, 42_000.0):
        trace.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5, at + 40_005)
        for i in range(20):
            start = at + 40_010 + 95 * i
            trace.op("aten::add", start, start + 80, [[64, 64], [64, 64]], ["float", "float"])
            trace.launch((start + 40, start + 50), (start + 60, start + 65), ADDS)
    result = analysed(tmp_path, trace)
    assert result.lead is not None and result.findings[0].rule == "data-loader-starves-gpu"
    assert result.findings[0].predicted_step_ms == pytest.approx(40 / 8 / 0.82, rel=0.05)
    assert result.plan and min(step.predicted_step_ms for step in result.plan) >= 6.0


class Times:
    """A what-if with a fixed step for each set of changes: ms, or ms with its interval."""

    def __init__(self, **steps) -> None:
        self.steps = {frozenset(names.split("_")): (step if isinstance(step, tuple) else (step, step, step)) for names, step in steps.items()}  # fmt: skip

    def predict_ms(self, best, edits):
        return self.steps.get(frozenset(edits), (None,))[0]

    def predict_range_ms(self, best, edits):
        return self.steps[frozenset(edits)][1:]

    def range_of_another_run_ms(self, best, edits, between):
        return between

    def least_ms(self, best, edits):
        return 0.0


def planned(times, *findings):
    step = Reading(100.0)
    steps = plan_of(times, BestStepTime("profile", step, step, missing("Not in this test."), step.value), findings)
    return [(step.rule, step.before_ms, step.predicted_step_ms) for step in steps]


def test_uncertain_changes_are_not_in_the_plan():
    times = Times(a=80.0, b=90.0, a_b=60.0, c=70.0)
    unsure, note = finding("unsure", "a", confidence="low"), finding("note", "b", severity="info")
    assert planned(times, unsure, note) == [("note", 100.0, 90.0)]


def test_half_a_percent_is_not_a_gain():
    assert planned(Times(a=100.0 / NO_GAIN), finding("a", "a")) == []
    assert planned(Times(a=100.0 / NO_GAIN, a_b=50.0, b=50.0), finding("a", "a"), finding("b", "b")) == [("b", 100.0, 50.0)]
    # The better case of b alone gains 0.1 of 10 ms, although the worse case of a leaves room for it.
    assert planned(Times(a=(10.0, 8.0, 20.0), a_b=(9.99, 8.0, 12.0)), finding("a", "a"), finding("b", "b")) == [
        ("a", 100.0, 10.0)
    ]


def test_the_worse_case_of_a_step_is_faster_beyond_noise():
    high = 100.0 / (1 + GPU_LIMITED_STEP_DIFFERENCE)
    assert planned(Times(a=(90.0, 80.0, high)), finding("a", "a")) == []
    assert planned(Times(a=(90.0, 80.0, 0.999 * high)), finding("a", "a")) == [("a", 100.0, 90.0)]
    second = Times(a=(50.0, 45.0, 50.0), a_b=(45.0, 40.0, 52.0))
    assert planned(second, finding("a", "a"), finding("b", "b")) == [("a", 100.0, 50.0)], "52 ms may be no less than 50 were"


def test_the_widest_uncertainty_of_earlier_steps_stays():
    # 8 to 20 of 10 ms, and 4.5 to 5.5 of 5 ms. After both, a step of 4 ms may take 3.2 to 8 ms, in either order.
    wide, narrow = PlanStep("wide", 100.0, 10.0, 8.0, 20.0), PlanStep("narrow", 10.0, 5.0, 4.5, 5.5)
    step = PlanStep("third", 5.0, 4.0, 3.96, 4.04)
    after = with_earlier_uncertainty(step, [narrow, wide], 0.1)
    assert (after.predicted_low_ms, after.predicted_high_ms) == pytest.approx((3.2, 8.0))
    after = with_earlier_uncertainty(step, [wide, narrow], 0.1)
    assert (after.predicted_low_ms, after.predicted_high_ms) == pytest.approx((3.2, 5.5))
