"""Tests of the order of changes: the headline's change, certain ones by gain, then uncertain ones.

Changes that only improve the recording come last.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import replace
from typing import Any

import pytest

from sawtooth.analysis.findings import rules
from sawtooth.analysis.metrics.pauses import Pauses, Reason
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence
from sawtooth.analysis.reading_order import in_reading_order
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import CodeChange, Explains, Finding, PlanStep, RunResult
from sawtooth.app.words import advice, predicted_gain
from sawtooth.app.words.answer.title import title
from sawtooth.app.words.headline import below, between_steps, headline
from tests.support.actions import act
from tests.support.run_results import run_of

SLOW = [("other_compute", None, 100_000_000, 100.0)]
COPIES = [("exposed_memcpy", None, 97_000_000, 97.0), ("other_compute", None, 3_000_000, 3.0)]


def gains(rule: str, ms: float, confidence: Any = "medium", severity: Any = "warning", **more: Any) -> Finding:
    """Return a finding that saves ``ms`` of a step of 100 ms."""
    return Finding(rule, severity, f"{rule} costs {ms} ms", act(f"Change {rule}."), confidence, predicted_step_ms=100 - ms,
                   predicted_speedup=100 / (100 - ms), **more)  # fmt: skip


RECORD = Finding("steps-not-marked", "warning", "The steps are not marked", act("Mark each step."), "high")


def order(*findings: Finding, ledger: Any = SLOW) -> list[str]:
    result = in_reading_order(replace(run_of(ledger=ledger), findings=list(findings)), None)
    return [finding.rule for _, finding in advice.numbered(result)]


def test_changes_are_sorted_by_certainty_and_gain_with_recording_advice_last() -> None:
    assert order(
        RECORD,
        gains("first", 30.0, severity="critical"),
        gains("unsure", 60.0, "low"),
        gains("small", 5.0),
        gains("large", 20.0),
    ) == ["first", "large", "small", "unsure", "steps-not-marked"]


def test_a_change_with_little_additional_gain_says_so() -> None:
    python = Explains(("python_host",))
    collects, between = (
        gains("collects", 85.0, edits=[True], explains=python),
        gains("between", 84.0, edits=[True], explains=python),
    )
    compiles, loss, apart = gains("compiles", 5.0), gains("loss", 5.0), gains("apart", 4.0)
    plan = (PlanStep("collects", 100, 15, 14, 16), PlanStep("compiles", 15, 10, 9, 11), PlanStep("loss", 10, 9.6, 9, 11))
    result = replace(run_of(ledger=SLOW), findings=[collects, between, compiles, loss, apart], plan=plan)
    said = {
        finding.rule: (advice.note_on_other_changes(result, finding) or "").replace("\xa0", " ")
        for _, finding in advice.numbered(result)
    }
    assert said == {
        "collects": "",
        "between": "Change 1 saves the same time, so the two gains do not add up.",
        "compiles": "",
        "loss": "After changes 1 and 3, this change saves ≈ 400 µs.",
        "apart": "",
    }
    third = replace(result, plan=(*plan, PlanStep("apart", 9.6, 9.5, 9, 10)))
    assert advice.note_on_other_changes(third, apart) == "After changes 1, 3 and 4, this change saves ≈\u00a0100\u00a0µs."


@pytest.mark.parametrize(
    ("high_ms", "confidence", "said"),
    [(90.0, "high", "high confidence"), (99.5, "high", "may gain nothing"), (99.5, "low", "low confidence")],
)
def test_a_change_that_may_gain_nothing_is_uncertain(high_ms: float, confidence: Any, said: str) -> None:
    change = gains("a", 15.0, confidence, predicted_low_ms=80.0, predicted_high_ms=high_ms)
    assert predicted_gain.detail(change).endswith(f", {said}")


def test_a_change_that_saves_more_after_another_says_why() -> None:
    host, copies, small = gains("host", 30.0), gains("copies", 1.2), gains("small", 1.1)
    plan = (PlanStep("host", 100, 70, 65, 75), PlanStep("copies", 70, 65.8, 60, 68), PlanStep("small", 65.8, 64.6, 60, 68))
    result = replace(run_of(ledger=SLOW), findings=[host, copies, small], plan=plan)
    said = [
        (advice.note_on_other_changes(result, finding) or "").replace("\xa0", " ") for _, finding in advice.numbered(result)
    ]
    assert said == [
        "",
        "After change 1, this change saves ≈ 4.20 ms.",
        "",
    ]


@pytest.mark.parametrize("alone_ms", [0.0, 1.0])  # Reads with almost no gain, which cannot be in a graph.
def test_a_required_change_is_first_in_the_plan(alone_ms: float) -> None:
    reads = gains("reads", alone_ms)
    graph = gains("graph", 60.0, edits=(AsGraph(),), needs_first=("reads",))
    plan = (PlanStep("reads", 100.0, 100.0, 100.0, 100.0), PlanStep("graph", 100.0, 40.0, 35.0, 45.0))
    result = replace(run_of(ledger=SLOW), findings=[reads, graph], plan=plan)
    assert headline(result).replace("\xa0", " ") == "Change reads, then change graph: 100 → ≈ 40.0 ms"
    assert (advice.plan_title(result) or "").endswith("per step with 2 changes")
    assert [line.replace("\xa0", " ") for line in advice.plan_lines(result)] == [
        "Change reads: little gain alone, makes the next change possible",
        "Change graph: 100 ms → ≈ 40.0 ms (35.0 to 45.0 ms)",
    ]
    assert advice.gain_text(result, reads) == "little gain alone: makes change 2 possible"
    assert advice.note_on_other_changes(result, reads) is None and advice.note_on_other_changes(result, graph) is None
    both = advice.plan_bar(result, None)
    assert both is not None and both.name.startswith("both changes")


def test_a_loss_without_a_finding_has_advice_before_recording_advice() -> None:
    result = replace(run_of(ledger=COPIES), findings=[RECORD])
    what, most = advice.advice_on_loss(result) or ("", "")
    assert what.startswith("Send fewer bytes") and "pinned" not in what and "97.0" in most and "97" in most
    assert advice.advice_on_loss(replace(result, findings=[gains("copies", 50.0)])) is None  # The finding says what to do.


def test_a_plan_with_an_uncertain_end_is_a_range() -> None:
    wide = PlanStep("a", 148.0, 0.29, 0.21, 5.9)
    assert (
        (advice.plan_title(replace(run_of(), plan=(wide,))) or "")
        .replace("\xa0", " ")
        .startswith("Plan: 148 ms → 0.21 to 5.90 ms")
    )
    narrow = PlanStep("a", 148.0, 11.2, 8.4, 14.0)
    assert "→ ≈\u00a011.2" in (advice.plan_title(replace(run_of(), plan=(narrow,))) or "")


def healthy(mfu: float, *findings: Finding) -> RunResult:
    result = run_of(ledger=[("tensor_core_compute", None, 99_000_000, 99.0), ("idle", "launch_latency", 1_000_000, 1.0)])
    return replace(result, metrics={**result.metrics, "mfu": Reading(mfu)}, findings=list(findings))


def test_a_busy_and_efficient_run_is_called_healthy() -> None:
    result = healthy(0.55, gains("fp8", 40.0, "low"), gains("small", 1.2))
    assert headline(result).startswith("Healthy: the GPU is busy 99")
    assert "no change is certain to save more than 1.2" in headline(result).replace("\xa0", " ")
    assert (below(result) or "").startswith("What might still help: Change fp8")


def test_a_healthy_verdict_does_not_deny_the_change_that_it_names() -> None:
    """ "No change found" must not stand above "What might still help: Try FP8"."""
    shown = title(None, 0, healthy(0.55, gains("fp8", 40.0, "low")))
    assert shown.pieces[0] == ("good", "Healthy:")  # In green, with a mark.
    assert shown.text.replace("\xa0", " ") == "Healthy: no change is certain to shorten the 100 ms step"
    assert "What might still help: Change fp8" in shown.under
    assert "no change found that shortens" in title(None, 0, healthy(0.55)).text


@pytest.mark.parametrize("result", [healthy(0.12), healthy(0.55, gains("sure", 20.0)), replace(healthy(0.55), lead=None)])
def test_a_run_far_from_the_peak_or_with_a_certain_change_is_not_healthy(result: RunResult) -> None:
    assert not headline(result).startswith("Healthy")


def test_a_code_change_shows_removed_lines_before_added_ones() -> None:
    loop = CodeChange(
        "PyTorch", "losses = []\nfor x in batch:\n    losses.append(loss(model(x)))", "loss(model(batch))\n# of all"
    )
    first, *lines = advice.diff(loop).splitlines()
    assert first == "  # for example" and [line[0] for line in lines] == ["-", "-", "-", "+", "+"]


def test_example_code_of_a_loader_has_no_batch_size() -> None:
    modules = [importlib.import_module(f"{rules.__name__}.{module.name}") for module in pkgutil.iter_modules(rules.__path__)]
    shown = [advice.diff(change) for module in modules for change in getattr(module, "CHANGES", ())]
    assert len(shown) > 50, "this test would otherwise check nothing"
    assert [text for text in shown if re.search(r"DataLoader\(.*\bbatch_size=\d", text)] == []


@pytest.mark.parametrize(
    ("reason", "steps", "in_step", "sentence"),
    [
        ("evaluation", (60, 120, 180), True, "Evaluation takes 1.50 ms of the step on average: 90.0 ms every 60 steps."),
        ("evaluation", (60, 120, 180), False, "Evaluation is not included in these times: 90.0 ms every 60 steps (1.50 ms per step on average)."),
        ("checkpoint", (60, 120), False, "Writing checkpoints is not included in these times: 90.0 ms every 60 steps (1.50 ms per step on average)."),
        ("checkpoint", (20, 120), True, None),  # Two checkpoints in 600 steps do not show a period: less than a hundredth of the step.
        ("unknown", (60, 120, 180, 240, 300, 360, 420), False,
         "Pauses between steps are not included in these times: 90 ms, 7 times in 600 steps (1.0 % of the run)."),
        ("unknown", (60, 120), False, None),  # The distance between the checkpoints does not show how often they occur.
    ],
)  # fmt: skip
def test_time_between_steps_is_mentioned_if_it_matters(
    reason: Reason, steps: tuple[int, ...], in_step: bool, sentence: str | None
) -> None:
    pauses = Pauses(reason, steps, (90.0,) * len(steps), 600, in_step)
    result = run_of(ledger=COPIES, source="marks", best_ms=100.0)
    assert result.lead is not None and between_steps(result) is None
    best = replace(
        result.lead.best,
        source="marks",
        reading=Reading(100.0),
        evidence=(StepTimeEvidence("marks", 100.0, 99.0, 101.0, pauses=(pauses,)),),
    )
    reported = between_steps(replace(result, lead=replace(result.lead, best=best)))
    assert (reported and reported.replace("\xa0", " ")) == sentence


def test_the_first_change_is_the_same_on_every_screen() -> None:
    """A loader that limits the step comes first.

    A screen about launches names the change before its own, and says why its numbers do not show it.
    """
    loader = gains(
        "loader",
        40.0,
        severity="critical",
        limits_the_step=True,
        explains=Explains(("data_wait",), topics=frozenset({"hidden"})),
    )
    launches = gains("launches", 20.0)
    result = replace(run_of(ledger=SLOW), findings=[loader, launches])
    assert advice.first(result) == (1, loader)
    assert (advice.first_in_words(result) or "").replace("\xa0", " ") == "Change loader: 100 → ≈ 60.0 ms"
    assert advice.unprofiled_topic(result) == "loader costs 40.0 ms"
    assert advice.note_on_first_change(result, [launches]) == "Change 1 comes first: loader costs 40.0 ms."
    assert advice.note_on_first_change(result, [loader, launches]) is None and advice.note_on_first_change(result, []) is None


def test_a_verdict_without_a_certain_change_says_what_to_try_first() -> None:
    small = replace(
        gains("layout", 10.0, severity="info"), predicted_step_ms=None, predicted_speedup=None, ceiling_ms_per_step=10.0
    )
    result = replace(run_of(ledger=SLOW), findings=[small])
    assert (
        (advice.below(result) or "")
        .replace("\xa0", " ")
        .endswith("What to try first: Change layout (saves at most 10.0 ms per step).")
    )
    assert advice.below(result, [small]) == below(result, [small])
    assert advice.first(replace(run_of(ledger=SLOW), findings=[])) is None


def test_the_limit_by_the_loader_is_mentioned_once() -> None:
    """Two changes are limited by the 80 ms between batches.

    The first says so, and the second refers to it.
    """
    first, second = (
        replace(gains(rule, 20.0), predicted_step_ms=None, predicted_speedup=None, ceiling_ms_per_step=20.0, fed_every_ms=80.0)
        for rule in ("launches", "python")
    )
    result = replace(run_of(ledger=SLOW), findings=[first, second])
    said = [(advice.note_on_other_changes(result, finding) or "").replace("\xa0", " ") for finding in (first, second)]
    assert said == [
        "The loader delivers a batch every 80.0 ms at best: a step cannot become shorter until the loader is faster.",
        "The loader limits this gain and that of change 1: together they save no more than the larger of the two.",
    ]
    assert headline(result).replace("\xa0", " ") == (
        "Change launches: up to 20.0 ms of each 100 ms step, because the loader needs at least 80.0 ms per batch"
    )
