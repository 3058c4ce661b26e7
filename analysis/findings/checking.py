"""Every rule there is, found by its file, and what comes of applying them to a run."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import duckdb

from sawtooth.analysis.findings import rules as rules_folder
from sawtooth.analysis.findings.rule import NEEDS, Rule, RuleContext
from sawtooth.analysis.run.model import Finding, NotChecked
from sawtooth.ingest.errors import SawtoothError

LOG = logging.getLogger(__name__)
OF_THE_HOST = ("launch-bound", "python-between-operators")  # rules that rest on how fast the host is without the profiler
NO_SURER = (
    "The run's step may be no longer than the GPU's own work, as far as the recordings tell: then this brings nothing. "
    "Ten seconds of `sawtooth sample` beside the run would tell."
)
GRAPHS, READS = "launch-bound", "host-waits-for-gpu"
READS_FIRST = "“{title}” comes first: one graph cannot hold these waits, and where they stay a step is several graphs."
CAPTURE = "graph-capture"  # the rule that finds steps in which launches are only recorded
ONCE = "The profiled steps capture a CUDA graph, which the run does once: its steps after that launch otherwise."
SAME_CAUSE = 0.5  # of what a finding changes: with more of it in another finding both are about the same thing
OWN_SQL = (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError)  # how a rule's own statement fails
FAILED = "the rule itself failed on this trace; please report it"


@lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Return every rule of ``sawtooth.analysis.findings.rules``, by slug."""
    modules = [
        importlib.import_module(f"sawtooth.analysis.findings.rules.{m.name}")
        for m in pkgutil.iter_modules(rules_folder.__path__)
    ]
    return tuple(sorted((module.RULE for module in modules if hasattr(module, "RULE")), key=lambda rule: rule.slug))


def check(context: RuleContext, rules: Iterable[Rule] | None = None) -> tuple[list[Finding], list[NotChecked]]:
    """Apply ``rules`` (all where None), largest predicted gain first."""
    findings: list[Finding] = []
    not_checked: list[NotChecked] = []
    for rule in all_rules() if rules is None else rules:
        lacking = [NEEDS[need][1] for need in rule.needs if not NEEDS[need][0](context)]
        if lacking:
            not_checked.append(NotChecked(rule.slug, "; ".join(lacking)))
        else:
            try:
                findings += [replace(finding, explains=rule.explains) for finding in rule.check(context)]
            except Exception as error:  # one rule's surprise must not take the whole report; it is named, never hidden
                if _is_of_the_store(error):
                    raise
                LOG.exception("rule %s failed on run %s", rule.slug, context.run.manifest.id)
                not_checked.append(NotChecked(rule.slug, f"{FAILED} ({type(error).__name__})"))
    doubt = NO_SURER if context.rank.best.gpu_may_limit else None
    if any(finding.rule == CAPTURE for finding in findings):
        doubt = ONCE
    if doubt is not None:
        findings = [_doubted(finding, doubt) if finding.rule in OF_THE_HOST else finding for finding in findings]
    return _each_cause_once(sorted(_reads_first(findings), key=_order)), not_checked


def _reads_first(findings: list[Finding]) -> list[Finding]:
    """Return the findings, that on graphs with the waits that have to go before all of a step can be captured."""
    reads = next((f for f in findings if f.rule == READS), None)
    if reads is None:
        return findings
    note = READS_FIRST.format(title=reads.title)
    return [
        replace(f, prediction_note=" ".join(filter(None, (f.prediction_note, note)))) if f.rule == GRAPHS else f
        for f in findings
    ]


def _each_cause_once(findings: list[Finding]) -> list[Finding]:
    """Return the findings, in order again, with one critical finding a cause: another that changes mostly the same kernels or calls is a
    second way out of it, and said to be so."""
    result: list[Finding] = []
    for finding in findings:
        mine = _changed(finding)
        first = (
            next((f for f in result if f.severity == "critical" and len(mine & _changed(f)) >= SAME_CAUSE * len(mine)), None)
            if mine and finding.severity == "critical"
            else None
        )
        if first is not None:
            note = f"The same work as in “{first.title}”: another way to change it, and the gains do not add up."
            finding = replace(
                finding, severity="warning", prediction_note=" ".join(filter(None, (finding.prediction_note, note)))
            )
        result.append(finding)
    return sorted(result, key=_order)


def _changed(finding: Finding) -> set[tuple[str, int]]:
    """Return the GPU operations and calls that a finding's edits name."""
    return {(kind, number) for edit in finding.edits for kind in ("ops", "calls") for number in getattr(edit, kind, None) or ()}


def _is_of_the_store(error: Exception) -> bool:
    """Tell whether a recording is damaged or missing, memory short or the disk failing: then no rule is to blame and none can be trusted."""
    broken = isinstance(error, duckdb.Error) and not isinstance(error, OWN_SQL)
    return broken or isinstance(error, (SawtoothError, OSError, MemoryError))


def _doubted(finding: Finding, why: str) -> Finding:
    """Return a finding on the host's pace for a run whose steps may be limited otherwise: a faster host may then bring nothing."""
    return replace(
        finding, severity="info", confidence="low", prediction_note=" ".join(filter(None, (finding.prediction_note, why)))
    )


def _order(finding: Finding) -> tuple[int, bool, bool, bool, float, str]:
    severity = ("critical", "warning", "info").index(finding.severity)
    # A late rank comes before its own findings: they say the same time again, and not that one rank alone loses it. What says which launches need
    # not be comes before what would only make all of them cheaper.
    general = finding.rule in OF_THE_HOST
    return (severity, not finding.ends_the_run, not finding.explains.late_rank, general, -finding.gain_ms, finding.rule)
