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
from sawtooth.analysis.findings.actions import own_names
from sawtooth.analysis.findings.context import REQUIREMENTS, RuleContext
from sawtooth.analysis.findings.judging import Step, judge
from sawtooth.analysis.findings.loops.acting import without_acting
from sawtooth.analysis.findings.loops.later import later_findings
from sawtooth.analysis.findings.model import Evidence, Judgement, Rule, advise
from sawtooth.analysis.findings.ordering import changes_needed_first, check_relations, ordered, rank
from sawtooth.analysis.findings.recorded.own_places import with_own_places
from sawtooth.analysis.findings.straggler_limits import bounded_by_late
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.metrics.step_time_evidence import SAMPLE_IT
from sawtooth.analysis.run.model import Finding, NotChecked, RankResult, RunResult
from sawtooth.ingest.errors import SawtoothError

LOG = logging.getLogger(__name__)
GPU_MAY_LIMIT = (
    "The recordings do not show whether the run's step is longer than the GPU's own work. If it is not, this change gains nothing. "
    + SAMPLE_IT
)
ONCE = "The profiled steps capture a CUDA graph. The run does this only once, so its later steps launch differently."
# If the profiled step is below this multiple of the run's step, its shares are still right; the same as in profiler-distorts.
SHAPE_FACTOR = 1.3
DISTORTED = "The profiled steps take {times:.1f} times as long as the run's: the host's lost time per cause is less certain than its sum."
# A rank is also concerned if it loses this share of the analysed rank's loss. Balanced ranks lose about the same time; in tests
# with one slow rank, the other ranks lost less than this share.
AS_MUCH = 0.5
MAX_NAMED = 4  # A title names at most this many ranks.
OTHERS_WAIT = "The other ranks wait in collectives meanwhile. This hides the time of their own hosts."
# DuckDB raises these errors if a rule's own SQL statement is wrong.
OWN_SQL = (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError)
FAILED = "the rule itself failed on this trace; please report it"


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
    """The ordered findings and the rules that were not checked.

    ``below_threshold`` has the ms per step of evidence below the rule's threshold, by rule.
    """

    findings: list[Finding]
    not_checked: list[NotChecked]
    below_threshold: dict[str, float]


def check(context: RuleContext, rules: Iterable[Rule] | None = None) -> CheckedRules:
    """Apply ``rules`` (default: all rules): measure, judge for the run's step, and make findings."""
    rules = all_rules() if rules is None else tuple(rules)
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    small: list[tuple[Rule, Evidence]] = []
    for rule in rules:
        lacking = [REQUIREMENTS[data][1] for data in rule.requires if not REQUIREMENTS[data][0](context)]
        if (withheld := _withheld(rule, context.run)) is not None:
            not_checked.append(withheld)
        elif lacking:
            not_checked.append(NotChecked(rule.slug, "; ".join(lacking)))
        else:
            try:
                judged = judged_by(rule, context)
                findings += _with_advice(rule, judged)
                small += [(rule, evidence) for evidence, judgement in judged if judgement is None]
            # An error in one rule must not stop the whole report. It is reported as not checked, never hidden.
            except Exception as error:
                if _is_store_error(error):
                    raise
                LOG.exception("rule %s failed on run %s", rule.slug, context.run.manifest.id)
                not_checked.append(NotChecked(rule.slug, f"{FAILED} ({type(error).__name__})"))
    names = own_names(context.recording) if context.rank.trace.with_stack else {}
    findings = [_with_ranks(context, _with_names_of_the_run(finding, rules, names, context.trainer)) for finding in findings]
    doubt = GPU_MAY_LIMIT if context.rank.best.gpu_may_limit else None
    if any("captures_graph" in finding.explains.topics for finding in findings):
        doubt = ONCE
    if doubt is not None:
        findings = [_with_doubt(finding, doubt) if "host_pace" in finding.explains.topics else finding for finding in findings]
    findings = bounded_by_late(context, [_less_sure_if_distorted(context, finding) for finding in findings])
    findings = ordered(context, findings, rules)
    later = [
        _with_ranks(context, _with_names_of_the_run(finding_later, rules, names, context.trainer))
        for finding_later in later_findings(context, findings, small)
    ]
    below: dict[str, float] = {}
    for rule, evidence in small:
        below[rule.slug] = below.get(rule.slug, 0.0) + (evidence.lost_ms or evidence.cost_ms or 0.0)
    located = [with_own_places(context.recording, context.rank.device, finding) for finding in (*findings, *later)]
    return CheckedRules(located, not_checked, below)


def found_by(rule: Rule, context: RuleContext) -> list[Finding]:
    """Return the findings of ``rule``, judged for the run's step."""
    return _with_advice(rule, judged_by(rule, context))


def _with_advice(rule: Rule, judged: Sequence[tuple[Evidence, Judgement | None]]) -> list[Finding]:
    return [advise(rule.slug, evidence, judgement, rule.explains) for evidence, judgement in judged if judgement is not None]


def judged_by(rule: Rule, context: RuleContext) -> list[tuple[Evidence, Judgement | None]]:
    """Return the evidence of ``rule``, each with its judgement (None if it is below the threshold)."""
    measured = [remaining for evidence in rule.measure(context) if (remaining := without_acting(context, evidence)) is not None]
    return [(evidence, judgement_of(rule, evidence, context.step)) for evidence in measured]


def judgement_of(rule: Rule, evidence: Evidence, step: Step) -> Judgement | None:
    """Return how ``rule`` judges ``evidence`` for ``step``; None if it is below the severity threshold."""
    return (rule.judge or judge)(evidence, step, rule.threshold)


def _with_names_of_the_run(finding: Finding, rules: Sequence[Rule], names: Mapping[str, str], trainer: str) -> Finding:
    """Adapt the finding's code to the run, and add the rules whose change must come first.

    The run's own names are inserted, and the code for its ``trainer`` comes first.
    """
    filled = (change.filled(**names) for change in finding.changes)
    changes = tuple(sorted(filled, key=lambda change: change.framework != trainer))
    return replace(finding, changes=changes, needs_first=changes_needed_first(finding.rule, rules))


def _with_ranks(context: RuleContext, finding: Finding) -> Finding:
    """Return a finding with the ranks that it concerns; unchanged for a run with one rank.

    A finding about a cause concerns the ranks that lose at least AS_MUCH of the analysed rank's loss to it. A finding about
    kernels concerns the analysed rank. If only one rank loses time of the host, the finding names it only if this rank is late,
    because a rank that waits for it in collectives may be as slow.
    """
    ranks, topics = context.run.ranks, finding.explains.topics
    if len(ranks) < 2 or "late_rank" in topics or "schedule" in topics or "marks_steps" in topics:
        return finding
    causes = finding.explains.causes
    lost = context.lost_ms(*causes)
    if not causes or not lost:
        return _with_note(finding, f"Measured on {_name_of(context.rank)}.")
    losing = [rank for rank in ranks if rank is context.rank or context.lost_ms(*causes, of=rank) >= AS_MUCH * lost]
    if len(losing) == len(ranks):
        return _with_note(finding, f"All {len(ranks)} ranks lose time to this cause.")
    if len(losing) == 1 and any(CAUSE_OF[cause].slowed for cause in causes) and not _is_late(context):
        return _with_note(replace(finding, title=f"{finding.title}, on {_name_of(context.rank)}"), OTHERS_WAIT)
    names = [_name_of(rank) for rank in losing[:MAX_NAMED]]
    named = f"{names[0]} alone" if len(losing) == 1 else f"{', '.join(names)}{' and others' if len(losing) > MAX_NAMED else ''}"
    return replace(finding, title=f"{finding.title}, on {named}")


def _is_late(context: RuleContext) -> bool:
    """Return whether the other ranks wait for the analysed rank because of its own work."""
    communication = context.run.communication
    stragglers = communication.stragglers if communication is not None else ()
    return any(context.run.ranks[position] is context.rank for straggler in stragglers for position in straggler.positions)


def _name_of(rank: RankResult) -> str:
    return f"rank {rank.rank}" if rank.rank is not None else f"device {rank.device}"


def _less_sure_if_distorted(context: RuleContext, finding: Finding) -> Finding:
    """Lower the confidence of a finding on the host to medium if the profiler distorts the steps.

    This applies if a profiled step takes SHAPE_FACTOR times the run's step or more. The finding gets a note with the reason.
    """
    profiled, run = context.rank.best.profiled.value, context.step_ms
    slowed = any(CAUSE_OF[cause].slowed for cause in finding.explains.causes)
    if not slowed or profiled is None or not run or profiled < SHAPE_FACTOR * run:
        return finding
    confidence = "medium" if finding.confidence == "high" else finding.confidence
    return _with_note(replace(finding, confidence=confidence), DISTORTED.format(times=profiled / run))


def _withheld(rule: Rule, run: RunResult) -> NotChecked | None:
    """Return why a rule is not checked if a check of the recordings failed; None if it can be checked.

    A failed check excludes the rules that read its evidence.
    """
    check = next((check for check in run.failed if not rule.reads.isdisjoint(check.evidence)), None)
    if check is None:
        return None
    return NotChecked(rule.slug, f"{check.sentence[0].lower()}{check.sentence[1:].rstrip('.')}")


def check_host(result: RunResult) -> tuple[list[Finding], list[NotChecked]]:
    """Return the findings of a run without GPU work, largest gain first, and the rules not checked.

    A rule is not checked if a check of its evidence failed.
    """
    rules = [rule for rule in all_rules() if rule.of_the_host is not None]
    withheld = {rule.slug: why for rule in rules if (why := _withheld(rule, result)) is not None}
    checks = [rule.of_the_host for rule in rules if rule.of_the_host is not None and rule.slug not in withheld]
    findings = sorted((finding for of_the_host in checks for finding in of_the_host(result)), key=rank)
    return findings, list(withheld.values())


def _with_note(finding: Finding, note: str) -> Finding:
    return replace(finding, prediction_note=" ".join(filter(None, (finding.prediction_note, note))))


def _is_store_error(error: Exception) -> bool:
    """Return whether the error comes from the data store and not from the rule.

    The recording is damaged or missing, memory is exhausted, or the disk fails. Then no rule's result can be trusted.
    """
    broken = isinstance(error, duckdb.Error) and not isinstance(error, OWN_SQL)
    return broken or isinstance(error, (SawtoothError, OSError, MemoryError))


def _with_doubt(finding: Finding, why: str) -> Finding:
    """Return a finding on host speed as uncertain.

    If something else limits the run's step, a faster host gains nothing.
    """
    return _with_note(replace(finding, severity="info", confidence="low"), why)
