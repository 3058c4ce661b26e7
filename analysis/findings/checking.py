"""Collect all rules and apply them to a run."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import duckdb

from sawtooth.analysis.findings import rules as rules_folder
from sawtooth.analysis.findings.actions import own_code_names
from sawtooth.analysis.findings.context import REQUIREMENTS, RuleContext
from sawtooth.analysis.findings.judging import Step, judge
from sawtooth.analysis.findings.loops.acting import without_acting
from sawtooth.analysis.findings.loops.later import later_findings
from sawtooth.analysis.findings.model import Evidence, Judgement, Rule, finding_from
from sawtooth.analysis.findings.ordering import changes_needed_first, check_relations, ordered_findings, sort_key
from sawtooth.analysis.findings.recorded.change_spans import with_change_spans
from sawtooth.analysis.findings.straggler_limits import limit_straggler_gains
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.metrics.step_time_evidence import SAMPLE_IT
from sawtooth.analysis.run.model import Finding, NotChecked, RankResult, RunResult
from sawtooth.ingest.errors import SawtoothError

LOG = logging.getLogger(__name__)
GPU_MAY_LIMIT = (
    "The recordings do not show whether the run's step is longer than the GPU's own work. If the step is as short, this change gains nothing. "
    + SAMPLE_IT
)
CAPTURED_ONCE = "The profiled steps capture a CUDA graph. The run captures it only once, so later steps launch differently."
MAX_PROFILED_FACTOR = 1.3  # Profiled step ÷ the run's step. Below this factor, the shares of the profiled step are still right.
DISTORTED = "The profiled steps take {times:.1f} times as long as the run's steps. So the host's lost time per cause is less certain than the sum of all causes."
# Share of the analysed rank's loss. A finding also concerns ranks that lose at least this share. Balanced ranks lose about the same
# time. In tests with one slow rank, the other ranks lost a smaller share.
MIN_LOSS_SHARE = 0.5
MAX_NAMED = 4  # Ranks in a title.
OTHERS_WAIT = "Meanwhile, the other ranks wait in collectives, which hides the time of their own hosts."
WRONG_SQL_ERRORS = (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError)
FAILED_RULE = "the rule itself failed on this trace; please report it"


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Return every rule of ``sawtooth.analysis.findings.rules``, sorted by slug."""
    modules = [
        importlib.import_module(f"sawtooth.analysis.findings.rules.{m.name}")
        for m in pkgutil.iter_modules(rules_folder.__path__)
    ]
    rules = tuple(sorted((module.RULE for module in modules if hasattr(module, "RULE")), key=lambda rule: rule.slug))
    check_relations(rules)
    return rules


class CheckedRules(NamedTuple):
    """The ordered findings, the rules that were not checked, and the loss below the rules' thresholds.

    ``below_threshold`` has this loss in ms per step, by rule.
    """

    findings: list[Finding]
    not_checked: list[NotChecked]
    below_threshold: dict[str, float]


def check(context: RuleContext, rules: Iterable[Rule] | None = None) -> CheckedRules:
    """Apply ``rules`` (default: all rules): measure, judge for the run's step, and make findings."""
    rules = all_rules() if rules is None else tuple(rules)
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    below_threshold: list[tuple[Rule, Evidence]] = []
    for rule in rules:
        missing_data = [REQUIREMENTS[data][1] for data in rule.requires if not REQUIREMENTS[data][0](context)]
        if (failed_check := _not_checked(rule, context.run)) is not None:
            not_checked.append(failed_check)
        elif missing_data:
            not_checked.append(NotChecked(rule.slug, "; ".join(missing_data)))
        else:
            try:
                judged_evidence = judged_by(rule, context)
                findings += _findings_from(rule, judged_evidence)
                below_threshold += [(rule, evidence) for evidence, judgement in judged_evidence if judgement is None]
            # An error in one rule must not stop the whole report. The rule is reported as not checked.
            except Exception as error:
                if _is_store_error(error):
                    raise
                LOG.exception("rule %s failed on run %s", rule.slug, context.run.manifest.id)
                not_checked.append(NotChecked(rule.slug, f"{FAILED_RULE} ({type(error).__name__})"))
    own_names = own_code_names(context.recording) if context.rank.trace.with_stack else {}

    def adapted(finding: Finding) -> Finding:
        return _with_ranks(context, _adapted_to_run(finding, rules, own_names, context.trainer))

    findings = [adapted(finding) for finding in findings]
    doubt = GPU_MAY_LIMIT if context.rank.best.gpu_may_limit else None
    if any("captures_graph" in finding.explains.topics for finding in findings):
        doubt = CAPTURED_ONCE
    if doubt is not None:
        findings = [_with_doubt(finding, doubt) if "host_pace" in finding.explains.topics else finding for finding in findings]
    findings = limit_straggler_gains(context, [_less_sure_if_distorted(context, finding) for finding in findings])
    findings = ordered_findings(context, findings, rules)
    later = [adapted(finding) for finding in later_findings(context, findings, below_threshold)]
    lost_ms_by_rule: dict[str, float] = {}
    for rule, evidence in below_threshold:
        lost_ms_by_rule[rule.slug] = lost_ms_by_rule.get(rule.slug, 0.0) + (evidence.lost_ms or evidence.cost_ms or 0.0)
    with_places = [with_change_spans(context.recording, context.rank.device, finding) for finding in (*findings, *later)]
    return CheckedRules(with_places, not_checked, lost_ms_by_rule)


def found_by(rule: Rule, context: RuleContext) -> list[Finding]:
    """Return the findings of ``rule``, judged for the run's step."""
    return _findings_from(rule, judged_by(rule, context))


def _findings_from(rule: Rule, judged_evidence: Sequence[tuple[Evidence, Judgement | None]]) -> list[Finding]:
    """Return the findings of the evidence that reaches the rule's threshold."""
    return [
        finding_from(rule.slug, evidence, judgement, rule.explains)
        for evidence, judgement in judged_evidence
        if judgement is not None
    ]


def judged_by(rule: Rule, context: RuleContext) -> list[tuple[Evidence, Judgement | None]]:
    """Return the evidence of ``rule``, each with its judgement (None below the threshold)."""
    changeable = (without_acting(context, evidence) for evidence in rule.measure(context))
    return [(evidence, judgement_of(rule, evidence, context.step)) for evidence in changeable if evidence is not None]


def judgement_of(rule: Rule, evidence: Evidence, step: Step) -> Judgement | None:
    """Return how ``rule`` judges ``evidence`` for ``step``; None if it is below the severity threshold."""
    return (rule.judge or judge)(evidence, step, rule.threshold)


def _adapted_to_run(finding: Finding, rules: Sequence[Rule], names: Mapping[str, str], trainer: str) -> Finding:
    """Adapt the finding's code to the run, and add the rules whose change must come first.

    The run's own names are inserted, and the code for its ``trainer`` comes first.
    """
    filled = (change.filled(**names) for change in finding.changes)
    changes = tuple(sorted(filled, key=lambda change: change.framework != trainer))
    return replace(finding, changes=changes, needs_first=changes_needed_first(finding.rule, rules))


def _with_ranks(context: RuleContext, finding: Finding) -> Finding:
    """Return a finding with the ranks that it concerns; unchanged for a run with one rank.

    A finding about a cause concerns the ranks that lose at least MIN_LOSS_SHARE of the analysed rank's loss to this cause. A
    finding about kernels concerns the analysed rank. The title says that only one rank loses host time only if this rank is
    late. The hosts of the other ranks may be as slow, but their waits in collectives hide this.
    """
    ranks, topics = context.run.ranks, finding.explains.topics
    if len(ranks) < 2 or "late_rank" in topics or "schedule" in topics or "marks_steps" in topics:
        return finding
    causes = finding.explains.causes
    lost_ms = context.lost_ms(*causes)
    if not causes or not lost_ms:
        return _with_note(finding, f"Measured on {_name_of(context.rank)}.")
    losing = [rank for rank in ranks if rank is context.rank or context.lost_ms(*causes, rank=rank) >= MIN_LOSS_SHARE * lost_ms]
    if len(losing) == len(ranks):
        return _with_note(finding, f"All {len(ranks)} ranks lose time to this cause.")
    if len(losing) == 1 and any(CAUSE_OF[cause].slowed for cause in causes) and not _is_late(context):
        return _with_note(replace(finding, title=f"{finding.title} ({_name_of(context.rank)})"), OTHERS_WAIT)
    names = [_name_of(rank) for rank in losing[:MAX_NAMED]]
    rank_names = (
        f"only {names[0]}" if len(losing) == 1 else f"{', '.join(names)}{' and others' if len(losing) > MAX_NAMED else ''}"
    )
    return replace(finding, title=f"{finding.title} ({rank_names})")


def _is_late(context: RuleContext) -> bool:
    """Return whether the other ranks wait for the analysed rank because of its own work."""
    communication = context.run.communication
    stragglers = communication.stragglers if communication is not None else ()
    return any(context.run.ranks[position] is context.rank for straggler in stragglers for position in straggler.positions)


def _name_of(rank: RankResult) -> str:
    return f"rank {rank.rank}" if rank.rank is not None else f"device {rank.device}"


def _less_sure_if_distorted(context: RuleContext, finding: Finding) -> Finding:
    """Lower the confidence of a finding on the host to medium if the profiler distorts the steps.

    The profiler distorts a step if it takes at least MAX_PROFILED_FACTOR times the run's step.
    """
    profiled_ms, run_ms = context.rank.best.profiled.value, context.step_ms
    is_slowed = any(CAUSE_OF[cause].slowed for cause in finding.explains.causes)
    if not is_slowed or profiled_ms is None or not run_ms or profiled_ms < MAX_PROFILED_FACTOR * run_ms:
        return finding
    confidence = "medium" if finding.confidence == "high" else finding.confidence
    return _with_note(replace(finding, confidence=confidence), DISTORTED.format(times=profiled_ms / run_ms))


def _not_checked(rule: Rule, run: RunResult) -> NotChecked | None:
    """Return why a rule cannot be checked, if a check of the data that it reads failed; else None."""
    check = next((check for check in run.failed if not rule.reads.isdisjoint(check.evidence)), None)
    if check is None:
        return None
    return NotChecked(rule.slug, f"{check.sentence[0].lower()}{check.sentence[1:].rstrip('.')}")


def check_host(result: RunResult) -> tuple[list[Finding], list[NotChecked]]:
    """Return the findings of a run without GPU work, largest gain first, and the rules not checked."""
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    for rule in all_rules():
        if rule.host_check is None:
            continue
        if (reason := _not_checked(rule, result)) is not None:
            not_checked.append(reason)
        else:
            findings += rule.host_check(result)
    return sorted(findings, key=sort_key), not_checked


def _with_note(finding: Finding, note: str) -> Finding:
    return replace(finding, prediction_note=" ".join(filter(None, (finding.prediction_note, note))))


def _is_store_error(error: Exception) -> bool:
    """Return whether the error comes from the data store and not from the rule.

    Such an error means that the recording is damaged or missing, that memory is exhausted, or that the disk fails.
    """
    is_database_failure = isinstance(error, duckdb.Error) and not isinstance(error, WRONG_SQL_ERRORS)
    return is_database_failure or isinstance(error, (SawtoothError, OSError, MemoryError))


def _with_doubt(finding: Finding, reason: str) -> Finding:
    """Return a finding on host speed as uncertain, with the reason."""
    return _with_note(replace(finding, severity="info", confidence="low"), reason)
