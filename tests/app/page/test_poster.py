"""Tests of the poster: each change gives its gain in one unit, and the first has the number 1.

Whole sentences stand behind "Why".
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sawtooth.analysis.combined_changes import CombinedPrediction
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import Finding, PlanStep
from sawtooth.analysis.run.verdict import judge
from sawtooth.app import templates
from sawtooth.app.charts.poster_bars import StepBar, now_and_after, of_run, unlabelled
from sawtooth.app.reports import text
from sawtooth.app.words import advice, evidence, predicted_gain
from tests.support.actions import act
from tests.support.run_results import run_of

GAIN = Finding("a", "warning", "a", act("Do it."), "medium", predicted_step_ms=64.6, predicted_speedup=67.0 / 64.6)


@pytest.mark.parametrize(
    ("changed", "gain", "detail"),
    [
        ({}, "saves ≈ 2.4 ms per step (3.6 %)", "then ≈ 64.6 ms, medium confidence"),
        ({"predicted_low_ms": 60.0, "predicted_high_ms": 66.0, "predicted_step_ms": 33.5, "predicted_speedup": 2.0}, "saves ≈ 33.5 ms per step (50 %)", "then ≈ 33.5 ms (60.0 to 66.0 ms), medium confidence"),
        ({"predicted_step_ms": None, "ceiling_ms_per_step": 1.5}, "saves at most 1.50 ms per step", "medium confidence"),
        ({"predicted_speedup": 1.0}, "no gain on its own: another bottleneck takes over", ""),
    ],
)  # fmt: skip
def test_gains_of_all_changes_have_one_unit(changed: dict[str, float], gain: str, detail: str) -> None:
    finding = replace(GAIN, **changed)  # type: ignore[arg-type]  # keyword arguments of several types
    assert predicted_gain.gain_text(finding).replace("\xa0", " ") == gain
    assert predicted_gain.detail(finding).replace("\xa0", " ") == detail


def test_the_bar_after_a_change_names_the_removed_time() -> None:
    verdict_of = run_of(ledger=[("other_compute", None, 1_000_000, 1.0)]).lead

    verdict = judge(verdict_of) if verdict_of is not None else None
    assert verdict is not None
    for after_ms, named in ((0.8, True), (0.05, False)):
        bars = now_and_after(verdict, "1.00 ms", CombinedPrediction(1.0, after_ms, None, 1))
        assert bool(bars[1].parts[0].label) == named
        assert any(piece.hint.startswith("after the change: ≈") for piece in unlabelled(bars)) != named
    shown = str(templates.pieces("poster.html").drawn([bars[0], bars[1]], unlabelled(bars)))
    assert "0.95\xa0ms shorter" in shown  # 1 − 0.05 ms, in the unit of the step.
    assert isinstance(bars[1], StepBar)


def test_without_a_finding_the_advice_on_the_largest_loss_is_number_1() -> None:
    how_to_record = Finding("steps-not-marked", "warning", "No steps are marked.", act("Mark each step."), "high")
    result = replace(
        run_of(ledger=[("exposed_memcpy", "blocking_copy", 940_000_000, 940.0), ("other_compute", None, 60_000_000, 60.0)]),
        findings=[how_to_record],
    )
    assert advice.advice_on_loss(result) is not None
    assert [number for number, _ in advice.numbered(result)] == [2]
    lines = text.text(result)
    assert lines.index("  1. ") < lines.index("  2. ")


def test_without_a_source_line_a_change_names_the_operator_with_its_phase_or_shapes() -> None:
    shaped = {"operator": "aten::copy_", "shapes": "[[8, 1024], [8, 1024], []]", "ms_per_step": 3.4}
    assert evidence.where(replace(GAIN, evidence=({"reason": "x"}, shaped))) == ("aten::copy_", "[[8, 1024], [8, 1024], []]")
    launched = {"ms": 0.1, "cause": "launch_bound", "phase": "backward", "operator": "aten::empty_like"}
    assert evidence.where(replace(GAIN, evidence=(launched,))) == ("aten::empty_like", "backward phase")
    loader = {"phase": "input", "operator": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"}
    assert evidence.where(replace(GAIN, evidence=(loader,))) == ("the DataLoader's next batch", "input phase")
    assert evidence.where(replace(GAIN, evidence=({"reason": "power cap"},))) is None


def test_evidence_is_rounded_and_has_no_empty_column() -> None:
    rows = (
        {
            "ms": 0.914_02,
            "cause": "python_host",
            "operator": "",
            "hit_share": 0.5,
            "start_ns": 1,
            "end_ns": 2,
            "calls": 12_345.0,
        },
    )
    heads, cells = evidence.table(replace(GAIN, evidence=rows))
    assert heads == ["Time", "Cause", "Hit share", "Calls"]
    assert [cell.replace("\xa0", " ") for cell in cells[0]] == ["914 µs", "Python on the host", "50 %", "12.3 k"]
    rank = {"rank": 1, "wait_ms_per_profiled_step": 5.6e-4, "last_in_share_of_collectives": 0.8}
    heads, cells = evidence.table(replace(GAIN, evidence=(rank, {**rank, "rank": 0}, {"ms": 9.0, "operator": "aten::mm"})))
    assert heads == ["Rank", "Wait per profiled step", "Last in share of collectives"]  # A second table is left out.
    assert [cell.replace("\xa0", " ") for cell in cells[0]] == ["1", "560 ns", "80 %"] and len(cells) == 2
    kernel = {
        "operator": "aten::mm",
        "kernel": "a",
        "phase": "p",
        "shapes": "[]",
        "ms_per_step": 7.5,
        "calls": 2.0,
        "gflop": 1.0,
    }
    assert evidence.table(replace(GAIN, evidence=(kernel,)))[0] == ["Operator", "Kernel", "Time per step", "Calls"]


def test_a_plan_with_a_much_larger_gain_than_its_first_change_has_a_bar() -> None:
    def plan(after_ms: float) -> tuple[PlanStep, ...]:
        return (PlanStep("a", 67.0, 64.6, 60.0, 66.0), PlanStep("b", 64.6, after_ms, after_ms - 1, after_ms + 1))

    ledger = [("other_compute", None, 67_000_000, 67.0)]
    result = replace(run_of(ledger=ledger), findings=[replace(GAIN, edits=(AsGraph(),))], plan=plan(30.0))
    complete = advice.plan_bar(result, 64.6)
    assert complete is not None and complete.name.startswith("both changes: 2.2") and "30.0" in complete.time
    assert [bar.name for bar in of_run(result, "67 ms", None, plan=complete)] == ["now", "plan"]
    assert advice.plan_bar(replace(result, plan=plan(62.0)), 64.6) is None  # The plan gains hardly more than its first change.
    assert advice.plan_bar(replace(result, plan=()), 64.6) is None
