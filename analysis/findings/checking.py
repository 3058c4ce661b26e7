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
from sawtooth.analysis.findings.late_ranks import bounded_by_late, late_before_pace
from sawtooth.analysis.findings.own_code import model, with_model
from sawtooth.analysis.findings.rule import NEEDS, SEVERITIES, WARNING_SHARE, Rule, RuleContext
from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.metrics.witness import SAMPLE_IT
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import Finding, NotChecked, RunResult
from sawtooth.analysis.units import in_words
from sawtooth.ingest.errors import SawtoothError

LOG = logging.getLogger(__name__)
NO_SURER = (
    "The run's step may be no longer than the GPU's own work, as far as the recordings tell: then this brings nothing. "
    + SAMPLE_IT
)
WAITS_FIRST = "“{title}” comes first: one graph cannot hold these waits, and where they stay a step is several graphs."
BEFORE_GRAPH = "“{title}” comes first: it is the smaller change, and {why}."
ANOTHER_WAY = "Another way out of the same:"
ONCE = "The profiled steps capture a CUDA graph, which the run does once: its steps after that launch otherwise."
PART_FIRST = "“{title}” is part of it, and has a remedy of its own: it comes first."
SHAPE_HOLDS = 1.3  # times the run's step, as the profiler-distorts rule has it: below it the shape of the profile still holds
DISTORTED = "The profiled steps take {times:.1f} times as long as the run's: what the host loses to which cause is less sure than its sum."
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
    if context.rank.trace.with_stack and (name := model(context.recording)) is not None:
        findings = [replace(finding, changes=with_model(finding.changes, name)) for finding in findings]
    doubt = NO_SURER if context.rank.best.gpu_may_limit else None
    if any(finding.explains.captures_graph for finding in findings):
        doubt = ONCE
    if doubt is not None:
        findings = [_doubted(finding, doubt) if finding.explains.host_pace else finding for finding in findings]
    findings = bounded_by_late(context, [_as_sure_as_the_profile(context, finding) for finding in findings])
    ordered = _waits_first(context, _each_cause_once(_whole_first(sorted(findings, key=_order))))
    return late_before_pace(context, _parts_first(_before_graph(ordered))), not_checked


def _as_sure_as_the_profile(context: RuleContext, finding: Finding) -> Finding:
    """Return a finding on what the host does, no surer than medium and with the reason, where the profiled steps take SHAPE_HOLDS times as long as the run's and more."""
    profiled, run = context.rank.best.profiled.value, context.step_ms
    slowed = any(CAUSE_OF[cause].slowed for cause in finding.explains.causes)
    if not slowed or profiled is None or not run or profiled < SHAPE_HOLDS * run:
        return finding
    confidence = "medium" if finding.confidence == "high" else finding.confidence
    return _with_note(replace(finding, confidence=confidence), DISTORTED.format(times=profiled / run))


def check_host(result: RunResult) -> list[Finding]:
    """Return what the rules find in a run without GPU work, largest gain first."""
    checks = [rule.of_the_host for rule in all_rules() if rule.of_the_host is not None]
    return sorted((finding for of_the_host in checks for finding in of_the_host(result)), key=_order)


def _parts_first(findings: list[Finding]) -> list[Finding]:
    """Return the findings with what names a part of a general one, and its remedy, before that: the general one stands right behind its first part, is no
    more severe, and only worth knowing where that part is most of it."""
    result = list(findings)
    for general in findings:
        first = next((f for f in findings if f.explains.part_of == general.rule and f.severity != "info"), None)
        if first is None:
            continue
        mostly = first.gain_ms >= SAME_CAUSE * (general.ceiling_ms_per_step or 0.0)
        severity = "info" if mostly else max(general.severity, first.severity, key=SEVERITIES.index)
        result.remove(general)
        behind = _with_note(replace(general, severity=severity), PART_FIRST.format(title=first.title))
        result.insert(result.index(first) + 1, behind)
    return result


def _whole_first(findings: list[Finding]) -> list[Finding]:
    """Return the findings with a choice, such as compiling the model, before the first of the faults that it mends on the way and that brings less: both
    change the same work, and who makes the larger change need not make the smaller. A critical fault has a line to change, and stands first."""
    ordered = list(findings)
    for whole in findings:
        if not whole.explains.chosen or whole.severity == "info":
            continue
        its = _changed(whole)
        behind = ordered.index(whole)
        lesser = (f for f in ordered[:behind] if f.severity == whole.severity and f.gain_ms < whole.gain_ms)
        part = next((f for f in lesser if _is_part(f, its)), None)
        if part is not None:
            ordered.remove(whole)
            ordered.insert(ordered.index(part), whole)
    return ordered


def _is_part(finding: Finding, of: set[tuple[str, int]]) -> bool:
    """Tell whether a finding changes mostly what those edits change too."""
    mine = _changed(finding)
    return bool(mine) and len(mine & of) >= SAME_CAUSE * len(mine)


def _waits_first(context: RuleContext, findings: list[Finding]) -> list[Finding]:
    """Return the findings, that on graphs with the waits that have to go before all of a step can be captured, and behind them where they cut
    it into graphs that bring less: what must be done first stands first, however little it brings alone."""
    waits = next((f for f in findings if f.explains.cuts_graph), None)
    graph = next((f for f in findings if f.explains.as_graph), None)
    if waits is None or graph is None or any(isinstance(edit, AsGraph) and edit.first_ops for edit in graph.edits):
        return findings  # between two graphs the host may wait
    noted = _with_note(graph, WAITS_FIRST.format(title=waits.title))
    ordered = [noted if f is graph else f for f in findings]
    if waits.severity != "info" and graph.edits and context.share(_kept_from_graph_ms(context)) >= WARNING_SHARE:
        ordered.remove(waits)
        ordered.insert(min(ordered.index(noted), findings.index(waits)), waits)
    return ordered


def _before_graph(findings: list[Finding]) -> list[Finding]:
    """Return the findings, that on graphs behind what is to be mended before one is tried."""
    first = next((f for f in findings if f.explains.before_graph and f.severity != "info"), None)
    graph = next((f for f in findings if f.explains.as_graph), None)
    if first is None or graph is None:
        return findings
    noted = _with_note(graph, BEFORE_GRAPH.format(title=first.title, why=first.explains.before_graph))
    ordered = [noted if f is graph else f for f in findings if f is not first]
    ordered.insert(min(ordered.index(noted), findings.index(first)), first)
    return ordered


def _kept_from_graph_ms(context: RuleContext) -> float:
    """Return what the waits inside a step keep a graph of it from bringing, in ms."""
    one, several = (context.predict_ms([AsGraph(waits_stay=stay)]) for stay in (False, True))
    return several - one if one is not None and several is not None else 0.0


def _with_note(finding: Finding, note: str) -> Finding:
    return replace(finding, prediction_note=" ".join(filter(None, (finding.prediction_note, note))))


def _each_cause_once(findings: list[Finding]) -> list[Finding]:
    """Return the findings with one critical finding a cause, which names the ways out of it: another that changes mostly the same kernels or calls
    is a second way, said to be so, and stands right behind it."""
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
            place = result.index(first)
            after = f" {in_words(finding.predicted_step_ms)} a step." if finding.predicted_step_ms is not None else ""
            result[place] = _with_note(first, f"{ANOTHER_WAY} {finding.fix}{after}")
            result.insert(place + 1, _with_note(replace(finding, severity="warning"), note))
        else:
            result.append(finding)
    return result


def _changed(finding: Finding) -> set[tuple[str, int]]:
    """Return the GPU operations and calls that a finding's edits name."""
    return {(kind, number) for edit in finding.edits for kind in ("ops", "calls") for number in getattr(edit, kind, None) or ()}


def _is_of_the_store(error: Exception) -> bool:
    """Tell whether a recording is damaged or missing, memory short or the disk failing: then no rule is to blame and none can be trusted."""
    broken = isinstance(error, duckdb.Error) and not isinstance(error, OWN_SQL)
    return broken or isinstance(error, (SawtoothError, OSError, MemoryError))


def _doubted(finding: Finding, why: str) -> Finding:
    """Return a finding on the host's pace for a run whose steps may be limited otherwise: a faster host may then bring nothing."""
    return _with_note(replace(finding, severity="info", confidence="low"), why)


def _order(finding: Finding) -> tuple[int, bool, bool, bool, bool, float, str]:
    severity = SEVERITIES.index(finding.severity)
    # A late rank comes before its own findings: they say the same time again, and not that one rank alone loses it. What says which launches need
    # not be comes before what would only make all of them cheaper.
    # Where the loader bounds what it brings, it does not outbid the others, and is the way to the loader's pace.
    # What may not be possible at all comes behind both.
    about = finding.explains
    general = (about.host_pace and finding.fed_every_ms is None) or (finding.severity == "warning" and about.chosen)
    guessed = finding.severity != "info" and finding.confidence == "low"
    return (severity, not finding.ends_the_run, not about.late_rank, guessed, general, -finding.gain_ms, finding.rule)
