"""Order findings by severity and gain, and by the relations that their rules declare.

A relation moves the first finding up, directly before the later one. Or it moves the later finding down, directly after the first.
``ordered_findings`` collects the relations and places the findings in one topological pass. Each moved finding gets a note with
the reason.
"""

from __future__ import annotations

import graphlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.judging import SEVERITIES, WARNING_SHARE
from sawtooth.analysis.findings.model import Rule
from sawtooth.analysis.run.model import Finding
from sawtooth.analysis.units import in_words

MIN_COMMON_SHARE = 0.5  # Two findings have the same cause if one changes at least this share of the other's operations.
ANOTHER_SOLUTION = "Another solution for the same cause:"
SAME_WORK = "This changes the same work as “{title}” in another way, so the gains do not add up."
MUCH_SURER = 2.0  # A gain is much surer if its lower bound is more than this multiple of the other lower bound.
ASSUMED_LOW_SHARE = 0.5  # The lower bound of a gain without an interval is this share of the gain.
# Changed fields of a finding whose change needs another change first, unless that change is only a part of it. The finding then has
# no gain of its own. The plan predicts the step time after both changes.
ONLY_AFTER: dict[str, object] = dict.fromkeys(
    ("predicted_step_ms", "predicted_low_ms", "predicted_high_ms", "predicted_speedup", "ceiling_ms_per_step")
) | {"pays_later": True}
PART_FIRST = "“{title}” comes first, because it is part of this finding and has its own solution."


def check_relations(rules: Iterable[Rule]) -> None:
    """Raise ValueError if rules declare relations to missing rules, or relations that form a cycle."""
    rule_of = {rule.slug: rule for rule in rules}
    pairs = [(first, later) for rule in rule_of.values() for first, later in _declared_pairs(rule)]
    if unknown := {slug for pair in pairs for slug in pair} - set(rule_of):
        raise ValueError(f"rules declare relations to rules that do not exist: {', '.join(sorted(unknown))}")
    predecessors: dict[str, set[str]] = defaultdict(set)
    for first, later in pairs:
        predecessors[later].add(first)
    try:
        graphlib.TopologicalSorter(predecessors).prepare()
    except graphlib.CycleError as error:
        raise ValueError(f"these relations form a cycle: {' → '.join(error.args[1])}") from None


def _declared_pairs(rule: Rule) -> list[tuple[str, str]]:
    """Return the pairs (first, later) of slugs in the relations that a rule declares."""
    parts = [(rule.slug, rule.part_of)] if rule.part_of is not None else []
    return [*((rule.slug, other.to) for other in rule.comes_before), *((other.to, rule.slug) for other in rule.needs), *parts]


def changes_needed_first(slug: str, rules: Iterable[Rule]) -> tuple[str, ...]:
    """Return the rules whose change must come before the change of ``slug``, declared by either rule."""
    by_slug = {rule.slug: rule for rule in rules}
    needed = [other.to for other in by_slug[slug].needs] if slug in by_slug else []
    declared_by_others = [
        rule.slug for rule in by_slug.values() for other in rule.comes_before if other.to == slug and not other.behind
    ]
    return tuple(dict.fromkeys((*needed, *declared_by_others)))


def sort_key(finding: Finding) -> tuple[int, bool, bool, bool, bool, float, str]:
    """Return the sort key for findings without a declared relation.

    A finding about a late rank comes before the rank's other findings, because these explain the same time. Findings that reduce
    launches come before general findings on launches. A finding on the host is not general if the loader limits its gain. Findings
    of low confidence come last in their severity, because their change may not be possible.
    """
    topics = finding.explains.topics
    is_general_on_host = "host_pace" in topics and finding.fed_every_ms is None
    is_choice = finding.severity == "warning" and "choice" in topics
    is_guess = finding.severity != "info" and finding.confidence == "low"
    return (
        SEVERITIES.index(finding.severity),
        not finding.ends_the_run,
        "late_rank" not in topics,
        is_guess,
        is_general_on_host or is_choice,
        -finding.gain_ms,
        finding.rule,
    )


@dataclass
class _Order:
    """Findings in the order of ``sort_key``, and the relations between them by their positions."""

    findings: list[Finding]
    firsts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # By position of the later finding.
    followers: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # By position of the first finding.
    leader: dict[int, int] = field(default_factory=dict)  # By position of the follower.

    def pull_up(self, first: int, later: int) -> None:
        self.firsts[later].append(first)

    def put_behind(self, first: int, later: int) -> None:
        if later not in self.leader and first != later:
            self.leader[later] = first
            self.followers[first].append(later)

    def note(self, position: int, note: str, **fields: object) -> None:
        """Add ``note`` to a finding, and replace its ``fields``."""
        finding = self.findings[position]
        text = " ".join(filter(None, (finding.prediction_note, note)))
        self.findings[position] = replace(finding, prediction_note=text, **fields)  # type: ignore[arg-type]  # callers pass fields of a finding

    def in_order(self) -> list[Finding]:
        """Return the findings in an order that obeys the relations, from one topological pass.

        Each finding comes after those that must come before it. Followers come directly after their leader.
        """
        placed: list[int] = []
        visited: set[int] = set()

        def place(position: int) -> None:
            if position in visited:
                return
            if (leader := self.leader.get(position)) is not None and leader not in visited:
                place(leader)
                return
            visited.add(position)
            for first in sorted(self.firsts[position]):
                place(first)
            placed.append(position)
            for follower in self.followers[position]:
                place(follower)

        for position in range(len(self.findings)):
            if position not in self.leader:
                place(position)
        for position in range(len(self.findings)):  # Followers whose leader was placed later.
            place(position)
        return [self.findings[position] for position in placed]


def ordered_findings(context: RuleContext, findings: Sequence[Finding], rules: Iterable[Rule]) -> list[Finding]:
    """Return the findings in reading order, with the reason for those that come after another."""
    rule_of = {rule.slug: rule for rule in rules}
    order = _Order(sorted(findings, key=sort_key))
    changed = [_changed_operations(finding) for finding in order.findings]
    decided = _choices_first(order, rule_of, changed) | _declared_order(context, order, rule_of)
    _each_cause_once(order, changed, decided)
    for relation in ("needs", "comes_before"):
        _add_relations(context, order, rule_of, relation)
    _parts_first(order, rule_of)
    return order.in_order()


def _choices_first(order: _Order, rule_of: dict[str, Rule], changed: list[set[tuple[str, int]]]) -> set[tuple[int, int]]:
    """Move a choice, such as compiling the model, before smaller faults that it also solves.

    Return the pairs of positions (choice, fault). Choice and fault change the same work, so the choice makes the smaller change
    unnecessary. A fault stays first if it has another severity, or if its gain is surer than the choice's.
    """
    pairs = set()
    for choice_position, choice in enumerate(order.findings):
        rule = rule_of.get(choice.rule)
        if rule is None or rule.same_work_as is None or choice.severity == "info":
            continue
        for position in range(choice_position):
            fault = order.findings[position]
            is_smaller = fault.severity == choice.severity and fault.gain_ms < choice.gain_ms
            is_surer = sure_gain_ms(fault) > sure_gain_ms(choice)
            if is_smaller and not is_surer and _changes_mostly(changed[position], changed[choice_position]):
                order.pull_up(choice_position, position)
                pairs.add((choice_position, position))
    return pairs


def _declared_order(context: RuleContext, order: _Order, rule_of: dict[str, Rule]) -> set[tuple[int, int]]:
    """Return the pairs of positions (first, later) of critical findings whose order a rule declares."""
    positions = {finding.rule: index for index, finding in enumerate(order.findings) if finding.severity == "critical"}
    return {
        (first, positions[relation.to])
        for slug, first in positions.items()
        if slug in rule_of
        for relation in rule_of[slug].comes_before
        if relation.to in positions and relation.applies(context, order.findings[first], order.findings[positions[relation.to]])
    }


def _changes_mostly(operations: set[tuple[str, int]], changed: set[tuple[str, int]]) -> bool:
    """Return whether at least MIN_COMMON_SHARE of ``operations`` are among ``changed``."""
    return bool(operations) and len(operations & changed) >= MIN_COMMON_SHARE * len(operations)


def _each_cause_once(order: _Order, changed: list[set[tuple[str, int]]], decided: set[tuple[int, int]]) -> None:
    """Put a critical finding after another critical finding if both change mostly the same work.

    The later finding then becomes a second solution for the same cause. ``decided`` has the pairs of positions (first, later) whose
    order is decided. Other pairs keep the order of the findings.
    """
    critical = [position for position, finding in enumerate(order.findings) if finding.severity == "critical"]

    def comes_first(first: int, later: int) -> bool:
        return (first, later) in decided or (first < later and (later, first) not in decided)

    def leader(later: int) -> int | None:
        leaders = (
            first
            for first in critical
            if comes_first(first, later) and _changes_mostly(changed[later], changed[first]) and leader(first) is None
        )
        return next(leaders, None)

    pairs = [(first, later) for later in critical if (first := leader(later)) is not None]
    for first, later in pairs:
        solution, finding = order.findings[later], order.findings[first]
        after_ms = solution.predicted_step_ms
        after = f" A step then takes {in_words(after_ms)}." if after_ms is not None else ""
        order.note(first, f"{ANOTHER_SOLUTION} {solution.action.sentence}{after}")
        order.note(later, SAME_WORK.format(title=finding.title), severity="warning")
        order.put_behind(first, later)


def _add_relations(context: RuleContext, order: _Order, rule_of: dict[str, Rule], relation: str) -> None:
    """Add the relations that the rules of the findings declare, either ``needs`` or ``comes_before``."""
    positions = {finding.rule: position for position, finding in reversed(list(enumerate(order.findings)))}
    for slug, own_position in positions.items():
        rule = rule_of.get(slug)
        for declared in getattr(rule, relation) if rule is not None else ():
            if declared.to not in positions:
                continue
            other_position = positions[declared.to]
            first, later = (other_position, own_position) if relation == "needs" else (own_position, other_position)
            first_finding, later_finding = order.findings[first], order.findings[later]
            if not declared.applies(context, first_finding, later_finding):
                continue
            if declared.because:
                order.note(later, declared.because.format(title=first_finding.title))
            if not declared.orders(context, first_finding, later_finding):
                continue
            if relation == "needs":
                is_part = not _gains_alone(context, first_finding) or is_much_surer(later_finding, first_finding)
                enabled_by = {"enabled_by": (*later_finding.enabled_by, declared.to)}
                order.note(later, "", **(enabled_by if is_part else ONLY_AFTER))
            if not declared.behind:
                order.pull_up(first, later)
            elif later < first:
                order.put_behind(first, later)


def is_much_surer(finding: Finding, first: Finding) -> bool:
    """Return whether the lower bound of a predicted gain is much larger than that of the ``first`` change."""
    return finding.confidence != "low" and sure_gain_ms(finding) > MUCH_SURER * sure_gain_ms(first)


def sure_gain_ms(finding: Finding) -> float:
    """Return the lower bound of a predicted gain, ms per step; 0 without a prediction.

    If the bound for this run is known, it is used, because it does not include the drift of a host between two runs.
    """
    if finding.claims != "gain" or finding.predicted_step_ms is None:
        return 0.0
    if finding.sure_gain_ms is not None:
        return finding.sure_gain_ms
    if finding.predicted_high_ms is None:
        return ASSUMED_LOW_SHARE * finding.gain_ms
    return max(finding.predicted_step_ms + finding.gain_ms - finding.predicted_high_ms, 0.0)


def _gains_alone(context: RuleContext, finding: Finding) -> bool:
    """Return whether ``finding`` has a sure and noticeable gain without other changes."""
    return finding.claims == "gain" and not finding.may_gain_nothing and context.share(finding.gain_ms) >= WARNING_SHARE


def _parts_first(order: _Order, rule_of: dict[str, Rule]) -> None:
    """Move a general finding directly after the first finding about a part of it.

    The general finding gets at most the severity of the part. If the part covers most of the general finding, the general finding
    becomes information.
    """
    for general_position, general in enumerate(order.findings):
        part_positions = (
            position
            for position, part in enumerate(order.findings)
            if (rule := rule_of.get(part.rule)) is not None and rule.part_of == general.rule and part.severity != "info"
        )
        first = next(part_positions, None)
        if first is None:
            continue
        part = order.findings[first]
        covers_most = part.gain_ms >= MIN_COMMON_SHARE * (general.ceiling_ms_per_step or 0.0)
        severity = "info" if covers_most else max(general.severity, part.severity, key=SEVERITIES.index)
        order.note(general_position, PART_FIRST.format(title=part.title), severity=severity)
        order.put_behind(first, general_position)


def _changed_operations(finding: Finding) -> set[tuple[str, int]]:
    """Return the GPU operations and calls that a finding's edits name."""
    return {(kind, number) for edit in finding.edits for kind in ("ops", "calls") for number in getattr(edit, kind, None) or ()}
