"""Tests of what every rule has: near misses, declared evidence, and predictions that were measured.

The committed texts of rules are in ``test_rule_texts.py``.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sawtooth.analysis.findings import rules as rules_folder
from sawtooth.analysis.findings.checking import FAILED_RULE, all_rules, found_by, judgement_of
from sawtooth.analysis.findings.context import REQUIREMENTS
from sawtooth.analysis.findings.judging import reaches_threshold
from sawtooth.analysis.findings.model import SOURCES, Rule
from sawtooth.analysis.findings.policy import Threshold
from sawtooth.analysis.knowledge.causes import NOT_RANKED_FIRST
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.app.words import causes as cause_words
from tests.analysis.findings.rules.cases import CASES
from tests.support.findings_of import NAMES, context_of, finding, predicted_together_ms, result_of, stopwatch_ms
from tests.support.paths import ROOT
from tests.support.sampled_loop import HAND_MADE

HEALTHY = ("gpt", "gpt_small", "gpt_no_reads", "mlp_graph", "resnet_fixed", "loader_workers", "copy_prefetched",
           "mlp_4096", "channels_last", "attention_sdpa", "mm_fp8")  # fmt: skip
MEASURED = [(slug, *pair) for slug, case in CASES.items() for pair in case.measured]
# Their near miss is a job with one number changed: tests/analysis/findings/test_straggler_limits.py.
MADE_ELSEWHERE = ("straggling-rank",)
# Begin with the last rule, because another worker may analyse the same recordings from the first on (test_rule_texts.py).
every_rule = pytest.mark.parametrize("rule", all_rules()[::-1], ids=lambda rule: rule.slug)


@every_rule
def test_a_near_miss_is_the_firing_case_with_one_condition_changed(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule is silent on its firing case after one condition has changed.

    The rule's threshold is set just above the value that the case reaches. If the threshold does not decide, the row names another
    constant and a value just beyond.
    """
    case = CASES[rule.slug]
    with context_of(case.with_finding[0]) as context:
        evidence = [one for one in rule.measure(context) if judgement_of(rule, one, context.step) is not None]
        assert evidence, f"{rule.slug} is quiet on {case.with_finding[0]}"
        if rule.slug in MADE_ELSEWHERE:
            return
        if case.condition is None:
            first = evidence[0]
            assert rule.threshold is not None, (
                f"{rule.slug} has no threshold: its row has to name the condition that makes a near miss"
            )
            reached = turning_point(
                lambda share: reaches_threshold(first, context.step, Threshold(share, "")), 0.0, 10.0, halvings=40
            )[0]
            assert reached >= rule.threshold.share, "the case has to reach the threshold"
            for share, fires in ((reached * 0.999, True), (reached * 1.001, False)):
                judgement = judgement_of(
                    replace(rule, threshold=Threshold(share, "just at what was measured")), first, context.step
                )
                assert (judgement is not None) == fires, (
                    f"{rule.slug} is not decided by its threshold: the row has to name a condition"
                )
        else:
            constant, value = case.condition
            monkeypatch.setattr(importlib.import_module(rule.measure.__module__), constant, value)
            assert found_by(rule, context) == [], f"{rule.slug} fires without the condition {constant}"


def test_an_unknown_case_is_named() -> None:
    with pytest.raises(LookupError, match="no recording is called 'no_such_case'"):
        result_of("no_such_case")


@every_rule
def test_suggested_code_never_makes_a_loader_with_batch_size_one(rule: Rule) -> None:
    module = importlib.import_module(rule.measure.__module__)
    codes = [code for change in getattr(module, "CHANGES", ()) for code in (change.before, change.after)]
    calls = [call for code in codes for call in re.findall(r"DataLoader\(.*?\)(?:\s|$)", code, re.DOTALL)]
    assert all("…" in call or "batch" in call for call in calls), calls  # PyTorch's own default is a batch of 1


@pytest.mark.parametrize(("slug", "name"), [(slug, name) for slug, case in CASES.items() for name in case.first])
def test_the_first_finding_names_the_planted_problem(slug: str, name: str) -> None:
    first = result_of(name).findings[0]
    assert first.rule == slug
    assert first.severity in ("critical", "warning")
    assert any(row.get("start_ns") is not None for row in first.evidence)


def test_every_case_belongs_to_a_rule() -> None:
    assert set(CASES) == {rule.slug for rule in all_rules()}


def test_a_rule_has_a_file_with_its_name() -> None:
    files = {path.stem for path in Path(rules_folder.__path__[0]).glob("*.py")} - {"__init__"}
    assert {rule.slug.replace("-", "_") for rule in all_rules()} == files


def test_only_the_checklist_names_rules() -> None:
    # Findings from telemetry name three rules, because a problem has one slug whether a profile or telemetry shows it. The
    # changes of `sawtooth try` name the rules that advise them.
    slugs = {rule.slug for rule in all_rules()}
    for package in ("analysis", "app", "sawtooth"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if (
                path.parent.name == "rules"
                or path.name in ("checklist.py", "from_telemetry.py", "joined.py")
                or path.parent.name == "trials"
            ):
                continue
            assert set(re.findall(r"[\"']([a-z0-9-]+)[\"']", path.read_text("utf-8"))) & slugs == set(), path.relative_to(ROOT)


@every_rule
def test_requirements_and_causes_of_a_rule_exist(rule: Rule) -> None:
    assert set(rule.requires) <= set(REQUIREMENTS)
    for cause in rule.explains.causes:
        assert cause not in NOT_RANKED_FIRST, f"the user cannot remove {cause}"
        assert cause_words.waits_for(cause) != cause_words.waits_for(None), f"{cause} is not a cause of the ledger"
    assert rule.explains.called is None or rule.explains.causes, "a rule that names a loss must explain a cause"


NEEDS_READ = {"shapes": "shapes", "stacks": "python_stacks", "memory": "allocations", "telemetry": "telemetry", "host": "host_telemetry",
              "ranks": "other_ranks", "steps": "steps"}  # fmt: skip


@every_rule
def test_a_rule_declares_the_evidence_it_reads(rule: Rule) -> None:
    # A failed check of evidence withdraws the findings that read it.
    assert rule.reads and rule.reads <= SOURCES
    assert {NEEDS_READ[need] for need in rule.requires if need in NEEDS_READ} <= rule.reads


@pytest.mark.sweep(16)
@pytest.mark.parametrize("name", [*NAMES, *HAND_MADE])
def test_no_rule_fails_on_a_recording_of_the_repository(name: str) -> None:
    assert [note.rule for note in result_of(name).not_checked if FAILED_RULE in note.because] == []


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_has_no_advice(name: str) -> None:
    advised = [f for f in result_of(name).findings if f.severity != "info"]
    assert [f.title for f in advised if f.rule != "elementwise-chains"] == []  # Compiling gpt_small saves 36 % (gpt_compiled).


@pytest.mark.parametrize(("slug", "before", "after", "within"), MEASURED)
def test_the_prediction_matches_the_measured_run_after_the_change(slug: str, before: str, after: str, within: float) -> None:
    found = finding(before, slug)
    assert found is not None
    assert found.predicted_step_ms == pytest.approx(stopwatch_ms(after), rel=within)


def test_two_findings_of_one_change_are_predicted_together() -> None:
    both = predicted_together_ms(result_of("norm_by_hand"), ("unfused-norm", "unfused-activation"))
    assert both == pytest.approx(stopwatch_ms("gpt_small"), rel=0.10)


def test_a_wait_is_named_by_the_line_of_the_user() -> None:
    first = result_of("gpt_reads_stack").findings[0]
    assert re.search(r"\.py:\d+ in ", first.title) and "<built-in" not in first.title and "torch/" not in first.title
