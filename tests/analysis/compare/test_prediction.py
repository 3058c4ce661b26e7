"""Predicted against measured: one fix by its finding, several by the plan, and nothing where A promised nothing."""

from __future__ import annotations

from dataclasses import replace

from sawtooth.analysis.compare.comparison import compare
from sawtooth.analysis.run.model import Finding, PlanStep
from sawtooth.app.words import comparison as words
from tests.support.run_results import run_of, side


def promised(rule, ms):
    return Finding(rule, "critical", f"{rule} costs", "Change it.", "high", predicted_step_ms=ms, predicted_speedup=200 / ms)


def test_one_fix_is_held_against_its_finding_and_several_against_the_plan():
    a = replace(run_of(best_ms=200.0, source="user"), findings=[promised("loader", 159.0), promised("sync", 180.0)])
    measured = run_of("b" * 16, best_ms=157.0, source="user")
    kept = replace(measured, findings=[promised("sync", 150.0)])
    one = compare(side(a), side(kept))
    assert (one.prediction.rules, one.prediction.predicted_ms, one.prediction.measured_ms) == (("loader",), 159.0, 157.0)
    assert words.tested(one) == "Predicted ≈ 159\u00a0ms, measured 157\u00a0ms: Change it."
    assert not any("Predicted" in sentence for sentence in words.sentences(one))  # it limits nothing
    assert compare(side(a), side(measured)).prediction is None  # no plan: gains do not add up
    steps = tuple(PlanStep(rule, 0.0, ms, ms, ms) for rule, ms in (("sync", 180.0), ("loader", 140.0)))
    assert compare(side(replace(a, plan=steps)), side(measured)).prediction.predicted_ms == 140.0
    assert compare(side(measured), side(a)).prediction is None
