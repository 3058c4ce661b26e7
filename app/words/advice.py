"""The order of changes, their short texts, and the plan that combines them.

The headline's change comes first, then certain changes by gain, then uncertain ones, then advice on better recordings.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.reading_order import best_ms, is_advice, leading, matters, prepared_by, same_as_delay
from sawtooth.analysis.run.model import CodeChange, Finding, PlanStep, RunResult
from sawtooth.analysis.run.overlapping_findings import same_time, shares_loss
from sawtooth.analysis.run.verdict import judge
from sawtooth.app import format as fmt
from sawtooth.app.charts.poster_bars import Planned
from sawtooth.app.printable import printable
from sawtooth.app.words import causes, predicted_gain
from sawtooth.app.words.headline import action, first_change, healthy
from sawtooth.app.words.headline import below as headline_below

NOTICEABLE = 1.1  # Ratio of gains: above it, the page explains why the larger change comes later.
# If a change adds less than this share of its own gain after the changes before it, a note says so.
LITTLE_LEFT = 0.5
# First lines of a code change. They are comments, so that a copied text remains code.
FOR_EXAMPLE, OF_RUN = "  # for example", "  # with this run's names"
_APART = re.compile(r"(?<=\S) {2,}#")  # The spaces that align a comment with others. In a narrow card, the line would wrap.
MORE_IN_PLAN = 0.1  # Share of the step after the first change. A plan that saves more than this gets its own bar.
TOO_WIDE = 3.0  # Ratio of the ends. A wider range is shown instead of its middle.


def numbered(result: RunResult) -> list[tuple[int, Finding]]:
    """Return the findings with their numbers, the same on every page and in every report.

    If the largest loss has advice of its own (``of_the_loss``), that advice is number 1.
    """
    return list(enumerate(result.findings, start=1 if of_the_loss(result) is None else 2))


def numbered_between(result: RunResult, rules: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return number, action and gain of the other findings whose number is below the last of ``rules``."""
    last = max((number for number, finding in numbered(result) if finding.rule in rules), default=0)
    others = [(number, f) for number, f in numbered(result) if number < last and f.rule not in rules]
    return [(number, action(f), gain_text(result, f)) for number, f in others]


def first(result: RunResult) -> tuple[int, Finding] | None:
    """Return the change to make first, with its number, for every screen and report.

    This is the headline's change, or else the first finding that asks for a change. None for a healthy run, and if the largest
    loss has advice of its own (``of_the_loss``).
    """
    if healthy(result) is not None or of_the_loss(result) is not None:
        return None
    lead = leading(result)
    changes = [(number, finding) for number, finding in numbered(result) if is_advice(finding)]
    return next((change for change in changes if change[1] is lead), next(iter(changes), None))


def first_in_words(result: RunResult) -> str | None:
    """Return the first change and its gain in the headline's words; None if there is no change."""
    if (change := first_change(result)) is not None:
        return change[1]
    if (loss := of_the_loss(result)) is not None:
        return ": ".join(loss)
    change_known = first(result)
    return None if change_known is None else f"{action(change_known[1])}: {gain_text(result, change_known[1])}"


def unseen_here(result: RunResult) -> str | None:
    """Return the topic of the first change if the profiled steps do not show it, else None."""
    lead = leading(result)
    return lead.title if lead is not None and (lead.limits_the_step or "hidden" in lead.explains.topics) else None


def comes_before(result: RunResult, shown_findings: Sequence[Finding]) -> str | None:
    """Return a sentence about the first change if ``shown_findings`` lacks it, else None."""
    change = first(result)
    if change is None or not shown_findings or change[1] in shown_findings:
        return None
    number, finding = change
    return f"Change {number} comes first: {unseen_here(result) or action(finding)}."


def below(result: RunResult, included: Sequence[Finding] = ()) -> str | None:
    """Return the line below the headline; if no change is named yet, also what to try first."""
    under = headline_below(result, included)
    if included or leading(result) is not None or best_ms(result) is None:
        return under
    named, _, gain = (first_in_words(result) or "").partition(": ")
    first_one = f"What to try first: {named}{f' ({gain})' if gain else ''}." if named else None
    return " ".join(filter(None, (under, first_one))) or None


def paragraphs(finding: Finding) -> list[str]:
    """Return what to do; for a finding from samples also what they show, and what to record next."""
    if not finding.observed:
        return [finding.fix]
    return [fmt.spaced(fmt.clean(finding.observed)), finding.fix, finding.prediction_note]


def gain_text(result: RunResult, finding: Finding) -> str:
    """Return a change's gain, and which other change it makes possible."""
    needed = next((number for number, other in numbered(result) if prepared_by(other, result) is finding), None)
    if needed is None:
        return predicted_gain.gain_text(finding)
    if finding.claims == "gain" and matters(finding, best_ms(result)) and not finding.may_gain_nothing:
        return f"{predicted_gain.gain_text(finding)}, and makes change {needed} possible"
    return f"little gain alone: makes change {needed} possible"


def gain_and_step(result: RunResult, finding: Finding) -> str:
    """Return a change's gain and, if claimed, the step after it with its confidence."""
    return ", ".join(filter(None, (gain_text(result, finding), predicted_gain.detail(finding))))


def note_on_other_changes(result: RunResult, finding: Finding) -> str | None:
    """Return a note if earlier changes make the gain of ``finding`` much smaller or larger, else None."""
    numbers = {other.rule: number for number, other in numbered(result)}
    if (other := same_time(result, finding)) is not None:
        return f"Change {numbers[other.rule]} saves the same time: together they save it once."
    if (first := leading(result)) is not None and shares_loss(result, first, finding):
        return f"Change {numbers[first.rule]} removes the same wait, so its gain and this one do not add up."
    if same_as_delay(result, finding):
        return "This change removes the cause of the late rank's delay, so its gain and the late rank's do not add up."
    if (bound := _loader_limit(result, finding)) is not None:
        return bound
    rules = [step.rule for step in result.plan]
    at = rules.index(finding.rule) if finding.rule in rules else 0
    if not at or not (finding.claims == "gain" or finding.pays_later) or result.plan[at].prepares:
        return None
    adds = result.plan[at].before_ms - result.plan[at].predicted_step_ms
    alone = finding.claims == "gain" and not finding.may_gain_nothing
    if alone and LITTLE_LEFT * finding.gain_ms < adds <= NOTICEABLE * finding.gain_ms:
        return None
    if finding.pays_later and at == 1 and _named_in(finding.title, result, rules[0]):
        return None  # The title already names the change before it.
    *others, last = (str(number) for number in sorted(numbers[rule] for rule in rules[:at]))
    others_in_words = f"changes {', '.join(others)} and {last}" if others else f"change {last}"
    after = f"After {others_in_words} it saves ≈\u00a0{fmt.duration_ms(adds)}"
    if finding.pays_later or adds <= NOTICEABLE * finding.gain_ms:
        return f"{after}."
    remove = "remove" if others else "removes"
    return f"{after}. Alone it saves less, because time that {others_in_words} {remove} hides a part of its gain."


def _named_in(title: str, result: RunResult, rule: str) -> bool:
    """Return whether the title of a change names the finding of ``rule`` as the change before it."""
    return any(f"“{action(finding)}”" in title for finding in result.findings if finding.rule == rule)


def _loader_limit(result: RunResult, finding: Finding) -> str | None:
    """Return that the loader's rate of batches limits a gain; the first such change explains it."""
    if finding.fed_every_ms is None:
        return None
    number, first_of_them = next((n, other) for n, other in numbered(result) if other.fed_every_ms is not None)
    if first_of_them is not finding:
        return (
            f"The loader limits this gain and that of change {number}: together they save no more than the larger of the two."
        )
    at_best = " at best" if finding.claims == "ceiling" else ""
    return f"The loader delivers a batch every {fmt.duration_ms(finding.fed_every_ms)}{at_best}: a step cannot become shorter until the loader is faster."


def of_the_loss(result: RunResult) -> tuple[str, str] | None:
    """Return what to do about the largest loss if no finding covers it, as in a trace without steps."""
    rank = result.lead
    verdict = judge(rank) if rank is not None else None
    if rank is None or verdict is None or verdict.kind not in ("starved", "loss") or verdict.loss is None:
        return None
    loss = verdict.loss
    if loss.cause in CAUSE_OF and CAUSE_OF[loss.cause].who == "the late rank":
        return None  # No finding names a late rank, so it cannot be said which rank to look at.
    if (loss.owner == "idle" and loss.cause in (None, "unattributed")) or any(
        _is_about(f, loss.cause) for f in result.findings
    ):
        return None
    of = f"each {fmt.duration_ms(verdict.step.value)} step" if verdict.step.value else "the recorded time"
    return causes.helps(loss.owner, loss.cause).rstrip(
        "."
    ), f"up to {fmt.duration_ms(loss.ms)}, {fmt.share(loss.share)} of {of}"


def _is_about(finding: Finding, cause: str | None) -> bool:
    """Return whether a finding is about lost time of a cause, or asks for any change."""
    return finding.claims != "caution" or (cause is not None and cause in finding.explains.causes)


def about_the_loss(result: RunResult) -> list[tuple[int, Finding]]:
    """Return the findings that explain the largest loss, if they have no gain and no change is advised."""
    verdict = judge(result.lead) if result.lead is not None else None
    cause = verdict.loss.cause if verdict is not None and verdict.kind in ("starved", "loss") and verdict.loss else None
    return [(number, finding) for number, finding in numbered(result) if cause is not None and cause in finding.explains.causes]


def plan_title(result: RunResult) -> str | None:
    """Return a plan's effect, such as "One plan: 40.0 ms → ≈ 28.0 ms per step with 3 changes".

    It is None without a plan, or if a plan cannot contain the headline's change: its gain is not replayed.
    """
    first = leading(result)
    if not result.plan:
        return None
    if first is not None and not first.ends_the_run and first.rule not in {step.rule for step in result.plan}:
        return None
    steps = f"{fmt.duration_ms(result.plan[0].before_ms)} → {_after_all(result.plan[-1])}"
    return f"One plan: {steps} per step with {fmt.many(len(result.plan), 'change')}"


def _after_all(last: PlanStep) -> str:
    """Return the step after a plan: "≈ 28.0 ms", or a range if the prediction is too wide."""
    if last.predicted_high_ms > TOO_WIDE * last.predicted_low_ms:
        return fmt.span_ms(last.predicted_low_ms, last.predicted_high_ms)
    return f"≈\u00a0{fmt.duration_ms(last.predicted_step_ms)}"


def plan_heading(result: RunResult) -> str | None:
    """Return ``plan_title`` for a list with ranges, with the level of these intervals.

    None for a single change.
    """
    title = plan_title(result) if len(result.plan) > 1 else None
    return f"{title} (ranges: 80\u00a0% intervals)" if title else None


def planned(result: RunResult, after_ms: float | None) -> Planned | None:
    """Return the whole plan as a bar next to the step after the first change.

    That step takes ``after_ms`` (None: not predicted). The result is None if the plan saves hardly more.
    """
    step_ms = best_ms(result)
    if plan_title(result) is None or not step_ms:
        return None
    last = result.plan[-1]
    if last.predicted_step_ms > (1 - MORE_IN_PLAN) * (after_ms or step_ms):
        return None
    changes = {1: "the change", 2: "both changes"}.get(len(result.plan), f"all {len(result.plan)} changes")
    return Planned(f"{changes}: {fmt.speedup(step_ms / last.predicted_step_ms)}", _after_all(last), last.predicted_step_ms)


def plan_lines(result: RunResult) -> list[str]:
    """Return the plan's fixes in order, each with the step before and after it."""
    actions = {finding.rule: fmt.clean(action(finding)) for finding in result.findings}
    ordered = []
    for step in result.plan:
        gain = "little gain alone, makes the next change possible"
        if not step.prepares:
            between = fmt.span_ms(step.predicted_low_ms, step.predicted_high_ms)
            gain = f"{fmt.duration_ms(step.before_ms)} → ≈\u00a0{fmt.duration_ms(step.predicted_step_ms)} ({between})"
        ordered.append(f"{actions.get(step.rule, step.rule)}: {gain}")
    return ordered


def diff(change: CodeChange) -> str:
    """Return a code change as a diff without file names and line numbers; removed lines come first.

    Its first line says whether names and values are from the run or only an example.
    """
    before, after = (_APART.sub("  #", text).splitlines() for text in (change.before, change.after))
    lines = [OF_RUN if change.of_run else FOR_EXAMPLE]
    for _, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        same = before[a:b] == after[c:d]
        lines += [f"  {line}" for line in before[a:b]] if same else [f"- {line}" for line in before[a:b]]
        lines += [] if same else [f"+ {line}" for line in after[c:d]]
    return "\n".join(printable(line, allowed="\t") for line in lines)  # because users copy it
