"""Order findings by severity and gain, and by the relations that their rules declare.

A relation either moves the first finding up, directly before the later one, or moves the later one down, directly after the
first. ``ordered`` collects the relations, places the findings in one topological pass, and adds to each finding that a relation
moved the reason for its place.
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

SAME_CAUSE = 0.5  # Two findings have the same cause if one changes more than this share of the other's operations.
ANOTHER_WAY = "Another solution for the same cause:"
SAME_WORK = "This changes the same work as “{title}” in another way, so the gains do not add up."
MUCH_SURER = 2.0  # A change comes first if the lower bound of its gain is more than this multiple of the first change's.
WITHOUT_INTERVAL = 0.5  # The lower bound of a gain without an interval is this share of the gain.
# Fields of a finding that are cleared if its change needs another one first that gains as much. It has no gain of its own then;
# the plan predicts its step time after the other change. If the other one gains less, it is a part of this change.
ONLY_AFTER: dict[str, object] = dict.fromkeys(
    ("predicted_step_ms", "predicted_low_ms", "predicted_high_ms", "predicted_speedup", "ceiling_ms_per_step")
) | {"pays_later": True}
PART_FIRST = "“{title}” is part of this and has its own solution, so it comes first."


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
    others = [rule.slug for rule in by_slug.values() for other in rule.comes_before if other.to == slug and not other.behind]
    return tuple(dict.fromkeys((*needed, *others)))


def rank(finding: Finding) -> tuple[int, bool, bool, bool, bool, float, str]:
    """Return the sort key for findings without a declared relation.

    A finding about a late rank comes before the other findings of that rank, because those explain the same time. Findings that
    reduce launches come before general ones that make launches cheaper. Findings of low confidence come last in their group,
    because the change may not be possible. A finding about the host is not general if the loader limits its gain.
    """
    topics = finding.explains.topics
    general = ("host_pace" in topics and finding.fed_every_ms is None) or (finding.severity == "warning" and "choice" in topics)
    guessed = finding.severity != "info" and finding.confidence == "low"
    return (
        SEVERITIES.index(finding.severity),
        not finding.ends_the_run,
        "late_rank" not in topics,
        guessed,
        general,
        -finding.gain_ms,
        finding.rule,
    )


@dataclass
class _Order:
    """Findings sorted by rank, and the relations between them.

    Positions in this list identify the findings.
    """

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

    def note(self, place: int, note: str, **changed: object) -> None:
        finding = self.findings[place]
        text = " ".join(filter(None, (finding.prediction_note, note)))
        self.findings[place] = replace(finding, prediction_note=text, **changed)  # type: ignore[arg-type]  # callers pass fields of a finding

    def placed(self) -> list[Finding]:
        """Return the findings in order of rank, changed by the relations, from one topological pass.

        Each finding comes after those that must come before it. Followers come directly after their leader.
        """
        finished: list[int] = []
        visiting: set[int] = set()

        def place(at: int) -> None:
            if at in visiting:
                return
            if (leader := self.leader.get(at)) is not None and leader not in visiting:
                place(leader)
                return
            visiting.add(at)
            for first in sorted(self.firsts[at]):
                place(first)
            finished.append(at)
            for follower in self.followers[at]:
                place(follower)

        for at in range(len(self.findings)):
            if at not in self.leader:
                place(at)
        for at in range(len(self.findings)):  # Followers of a leader that was placed later.
            place(at)
        return [self.findings[at] for at in finished]


def ordered(context: RuleContext, findings: Sequence[Finding], rules: Iterable[Rule]) -> list[Finding]:
    """Return the findings in reading order, with the reason for those that come after another."""
    rule_of = {rule.slug: rule for rule in rules}
    order = _Order(sorted(findings, key=rank))
    changed = [_changed_operations(finding) for finding in order.findings]
    earlier = _choices_first(order, rule_of, changed) | _declared_order(context, order, rule_of)
    _each_cause_once(order, changed, earlier)
    for relation in ("needs", "comes_before"):
        _add_relations(context, order, rule_of, relation)
    _parts_first(order, rule_of)
    return order.placed()


def _choices_first(order: _Order, rule_of: dict[str, Rule], changed: list[set[tuple[str, int]]]) -> set[tuple[int, int]]:
    """Move a choice, such as compiling the model, before smaller faults that it also solves.

    Return the pairs of positions (choice, fault). Both change the same work, so the choice makes the smaller change unnecessary.
    A critical fault stays first, because one changed line solves it, and so does a fault whose gain is surer than the choice's.
    """
    pairs = set()
    for whole, finding in enumerate(order.findings):
        rule = rule_of.get(finding.rule)
        if rule is None or rule.same_work_as is None or finding.severity == "info":
            continue
        for part in range(whole):
            lesser = order.findings[part]
            smaller = lesser.severity == finding.severity and lesser.gain_ms < finding.gain_ms
            smaller &= sure_gain_ms(lesser) <= sure_gain_ms(finding)
            if smaller and changed[part] and len(changed[part] & changed[whole]) >= SAME_CAUSE * len(changed[part]):
                order.pull_up(whole, part)
                pairs.add((whole, part))
    return pairs


def _declared_order(context: RuleContext, order: _Order, rule_of: dict[str, Rule]) -> set[tuple[int, int]]:
    """Return the pairs of positions (first, later) of critical findings whose order a rule declares."""
    at = {finding.rule: place for place, finding in enumerate(order.findings) if finding.severity == "critical"}
    return {
        (first, at[declared.to])
        for slug, first in at.items()
        if slug in rule_of
        for declared in rule_of[slug].comes_before
        if declared.to in at and declared.applies(context, order.findings[first], order.findings[at[declared.to]])
    }


def _each_cause_once(order: _Order, changed: list[set[tuple[str, int]]], earlier: set[tuple[int, int]]) -> None:
    """Put a critical finding after another critical finding if both change mostly the same work.

    The later finding is then shown as a second solution for the same cause. ``earlier`` are pairs of positions (first, later) whose
    order is decided; other pairs are in the order of the findings.
    """
    critical = [at for at, finding in enumerate(order.findings) if finding.severity == "critical"]

    def leads(first: int, later: int) -> bool:
        return (first, later) in earlier or (first < later and (later, first) not in earlier)

    def leader(later: int) -> int | None:
        changed_later = changed[later]
        return next(
            (
                first
                for first in critical
                if changed_later
                and leads(first, later)
                and len(changed_later & changed[first]) >= SAME_CAUSE * len(changed_later)
                and leader(first) is None
            ),
            None,
        )

    pairs = [(first, later) for later in critical if (first := leader(later)) is not None]
    for first, later in pairs:
        way, finding = order.findings[later], order.findings[first]
        after = f" A step then takes {in_words(way.predicted_step_ms)}." if way.predicted_step_ms is not None else ""
        order.note(first, f"{ANOTHER_WAY} {way.action.sentence}{after}")
        order.note(later, SAME_WORK.format(title=finding.title), severity="warning")
        order.put_behind(first, later)


def _add_relations(context: RuleContext, order: _Order, rule_of: dict[str, Rule], relation: str) -> None:
    """Add the relations that the rules of the findings declare, either ``needs`` or ``comes_before``."""
    at = {finding.rule: place for place, finding in reversed(list(enumerate(order.findings)))}
    for slug, own_place in at.items():
        rule = rule_of.get(slug)
        for declared in getattr(rule, relation) if rule is not None else ():
            if declared.to not in at:
                continue
            first, later = (at[declared.to], own_place) if relation == "needs" else (own_place, at[declared.to])
            pair = order.findings[first], order.findings[later]
            if not declared.applies(context, *pair):
                continue
            if declared.because:
                order.note(later, declared.because.format(title=pair[0].title))
            if not declared.orders(context, *pair):
                continue
            if relation == "needs":
                is_part = not _gains_alone(context, pair[0]) or is_much_surer(pair[1], pair[0])
                order.note(later, "", **({"enabled_by": (*pair[1].enabled_by, declared.to)} if is_part else ONLY_AFTER))
            if not declared.behind:
                order.pull_up(first, later)
            elif later < first:
                order.put_behind(first, later)


def is_much_surer(finding: Finding, first: Finding) -> bool:
    """Return whether the lower bound of a predicted gain is much larger than that of the ``first`` change."""
    return finding.confidence != "low" and sure_gain_ms(finding) > MUCH_SURER * sure_gain_ms(first)


def sure_gain_ms(finding: Finding) -> float:
    """Return the lower bound of a predicted gain, ms per step; 0 without a prediction.

    It is that of this run, if it is known: the drift of a host between two runs decides nothing about the gain.
    """
    if finding.claims != "gain" or finding.predicted_step_ms is None:
        return 0.0
    if finding.sure_gain_ms is not None:
        return finding.sure_gain_ms
    if finding.predicted_high_ms is None:
        return WITHOUT_INTERVAL * finding.gain_ms
    return max(finding.predicted_step_ms + finding.gain_ms - finding.predicted_high_ms, 0.0)


def _gains_alone(context: RuleContext, finding: Finding) -> bool:
    """Return whether ``finding`` has a sure and noticeable gain without other changes."""
    return finding.claims == "gain" and not finding.may_gain_nothing and context.share(finding.gain_ms) >= WARNING_SHARE


def _parts_first(order: _Order, rule_of: dict[str, Rule]) -> None:
    """Move a general finding directly after the first finding about a part of it.

    The general finding gets at most the severity of that part. If the part covers most of the general finding, this becomes
    "info".
    """
    for general, finding in enumerate(order.findings):
        parts = (
            at
            for at, part in enumerate(order.findings)
            if (rule := rule_of.get(part.rule)) is not None and rule.part_of == finding.rule and part.severity != "info"
        )
        first = next(parts, None)
        if first is None:
            continue
        part = order.findings[first]
        mostly = part.gain_ms >= SAME_CAUSE * (finding.ceiling_ms_per_step or 0.0)
        severity = "info" if mostly else max(finding.severity, part.severity, key=SEVERITIES.index)
        order.note(general, PART_FIRST.format(title=part.title), severity=severity)
        order.put_behind(first, general)


def _changed_operations(finding: Finding) -> set[tuple[str, int]]:
    """Return the GPU operations and calls that a finding's edits name."""
    return {(kind, number) for edit in finding.edits for kind in ("ops", "calls") for number in getattr(edit, kind, None) or ()}
