"""The order of changes, their short texts, and the plan that combines them.

The headline's change comes first, then certain changes by gain, then uncertain ones, then advice on better recordings.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.reading_order import (
    best_ms,
    can_be_first,
    is_advice,
    lead_finding,
    makes_possible,
    prepared_by,
    same_as_delay,
)
from sawtooth.analysis.run.model import CodeChange, Finding, PlanStep, RunResult
from sawtooth.analysis.run.overlapping_findings import same_time, shares_loss
from sawtooth.analysis.run.verdict import judge
from sawtooth.app import format as fmt
from sawtooth.app.charts.poster_bars import PlannedStep
from sawtooth.app.printable import printable
from sawtooth.app.words import causes, predicted_gain
from sawtooth.app.words.headline import about_now, action, first_change, healthy
from sawtooth.app.words.headline import below as headline_below

NOTICEABLE_RATIO = 1.1  # Ratio of two gains. Above it, the page explains why the larger change comes later.
MIN_REMAINING_GAIN = 0.5  # Share of a change's own gain. A note says if less remains after earlier changes.
# First lines of a code change. They are comments, so that a copied text remains code.
FOR_EXAMPLE, WITH_NAMES = "  # for example", "  # with this run's names"
_ALIGNED_COMMENT = re.compile(r"(?<=\S) {2,}#")  # Matches the spaces before a comment, which would wrap in a narrow card.
MIN_PLAN_SAVING = 0.1  # Share of the step time after the first change. A plan that saves more gets a bar.
MAX_RANGE_RATIO = 3.0  # Ratio of a range's ends. A wider range is shown instead of its middle.


def numbered(result: RunResult) -> list[tuple[int, Finding]]:
    """Return the findings with their numbers on every page and in every report.

    The numbers begin at 2 if ``advice_on_loss`` is change 1.
    """
    return list(enumerate(result.findings, start=1 if advice_on_loss(result) is None else 2))


def numbered_between(result: RunResult, rules: Sequence[str]) -> list[tuple[int, str, str]]:
    """Return number, action and gain of the other findings whose number is below the last of ``rules``."""
    last = max((number for number, finding in numbered(result) if finding.rule in rules), default=0)
    earlier = [(number, f) for number, f in numbered(result) if number < last and f.rule not in rules]
    return [(number, action(f), gain_text(result, f)) for number, f in earlier]


def first(result: RunResult) -> tuple[int, Finding] | None:
    """Return the change to make first, with its number.

    This is the headline's change, or else the first finding that asks for a change. It is None for a healthy run, and if
    ``advice_on_loss`` is change 1.
    """
    if healthy(result) is not None or advice_on_loss(result) is not None:
        return None
    lead = lead_finding(result)
    changes = [(number, finding) for number, finding in numbered(result) if is_advice(finding)]
    return next((change for change in changes if change[1] is lead), next(iter(changes), None))


def first_in_words(result: RunResult) -> str | None:
    """Return the first change and its gain in the headline's words; None if there is no change."""
    if (change := first_change(result)) is not None:
        return change[1]
    if (loss := advice_on_loss(result)) is not None:
        return ": ".join(loss)
    numbered_change = first(result)
    return None if numbered_change is None else f"{action(numbered_change[1])}: {gain_text(result, numbered_change[1])}"


def unprofiled_topic(result: RunResult) -> str | None:
    """Return the title of the first change if the profiled steps do not show its topic, else None."""
    lead = lead_finding(result)
    return lead.title if lead is not None and (lead.limits_the_step or "hidden" in lead.explains.topics) else None


def note_on_first_change(result: RunResult, shown_findings: Sequence[Finding]) -> str | None:
    """Return a sentence about the first change if ``shown_findings`` lacks it, else None."""
    change = first(result)
    if change is None or not shown_findings or change[1] in shown_findings:
        return None
    number, finding = change
    return f"Change {number} comes first: {unprofiled_topic(result) or action(finding)}."


def below(result: RunResult, included: Sequence[Finding] = ()) -> str | None:
    """Return the line below the headline, with what to try first if the headline names no change."""
    line = headline_below(result, included)
    if included or lead_finding(result) is not None or best_ms(result) is None:
        return line
    change, _, gain = (first_in_words(result) or "").partition(": ")
    first_try = f"What to try first: {change}{f' ({gain})' if gain else ''}." if change else None
    return " ".join(filter(None, (line, first_try))) or None


def paragraphs(finding: Finding) -> list[str]:
    """Return the fix; a finding from samples also says what the samples show and what to record next."""
    if not finding.observed:
        return [finding.fix]
    return [fmt.spaced(fmt.clean(finding.observed)), finding.fix, finding.prediction_note]


def gain_text(result: RunResult, finding: Finding) -> str:
    """Return a change's gain, and the number of the change that it makes possible."""
    prepared = next(
        (
            number
            for number, other in numbered(result)
            if prepared_by(other, result) is finding or makes_possible(finding, other)
        ),
        None,
    )
    if prepared is None:
        return predicted_gain.gain_text(finding)
    if finding.claims == "gain" and can_be_first(finding, best_ms(result)) and not finding.may_gain_nothing:
        return f"{predicted_gain.gain_text(finding)}, and makes change {prepared} possible"
    return f"little gain alone: makes change {prepared} possible"


def gain_and_step(result: RunResult, finding: Finding) -> str:
    """Return a change's gain and, if claimed, the step time after it with its confidence."""
    return ", ".join(filter(None, (gain_text(result, finding), predicted_gain.detail(finding))))


def note_on_other_changes(result: RunResult, finding: Finding, *, plan_shown: bool = False) -> str | None:
    """Return how other changes affect ``finding``, or None; a shown plan has the gain after them."""
    numbers = {other.rule: number for number, other in numbered(result)}
    if (other := same_time(result, finding)) is not None:
        return f"Change {numbers[other.rule]} saves the same time, so the two gains do not add up."
    if (first := lead_finding(result)) is not None and shares_loss(result, first, finding):
        return f"Change {numbers[first.rule]} removes the same wait, so the two gains do not add up."
    if same_as_delay(result, finding):
        late = next(
            number for number, other in numbered(result) if "late_rank" in other.explains.topics and other.claims == "gain"
        )
        return f"This change removes the same delay as change {late}, so the two gains do not add up."
    if (limit := _loader_limit(result, finding)) is not None:
        return limit
    return None if plan_shown else _note_on_earlier_changes(result, finding, numbers)


def _note_on_earlier_changes(result: RunResult, finding: Finding, numbers: Mapping[str, int]) -> str | None:
    """Return what a change of the plan saves after the changes before it.

    It is None if the change saves about as much alone. ``numbers`` are the numbers of the findings by rule.
    """
    rules = [step.rule for step in result.plan]
    position = rules.index(finding.rule) if finding.rule in rules else 0
    if not position or not (finding.claims == "gain" or finding.pays_later) or result.plan[position].prepares:
        return None
    saved_ms = result.plan[position].before_ms - result.plan[position].predicted_step_ms
    gains_alone = finding.claims == "gain" and not finding.may_gain_nothing
    if gains_alone and MIN_REMAINING_GAIN * finding.gain_ms < saved_ms <= NOTICEABLE_RATIO * finding.gain_ms:
        return None
    if finding.pays_later and position == 1 and _is_named_in(finding.title, result, rules[0]):
        return None
    *first_numbers, last = (str(number) for number in sorted(numbers[rule] for rule in rules[:position]))
    earlier_changes = f"changes {', '.join(first_numbers)} and {last}" if first_numbers else f"change {last}"
    return f"After {earlier_changes}, this change saves ≈\u00a0{fmt.duration_ms(saved_ms)}."


def _is_named_in(title: str, result: RunResult, rule: str) -> bool:
    return any(f"“{action(finding)}”" in title for finding in result.findings if finding.rule == rule)


def _loader_limit(result: RunResult, finding: Finding) -> str | None:
    """Return a note that the loader's rate of batches limits the gain, else None.

    The note of the first such change has the loader's rate. The other notes refer to that change.
    """
    if finding.fed_every_ms is None:
        return None
    number, first_limited = next((n, other) for n, other in numbered(result) if other.fed_every_ms is not None)
    if first_limited is not finding:
        return (
            f"The loader limits this gain and that of change {number}: together they save no more than the larger of the two."
        )
    at_best = " at best" if finding.claims == "ceiling" else ""
    return f"The loader delivers a batch every {fmt.duration_ms(finding.fed_every_ms)}{at_best}: a step cannot become shorter until the loader is faster."


def advice_on_loss(result: RunResult) -> tuple[str, str] | None:
    """Return what to do about the largest loss and its size, if no finding covers this loss.

    An example is a trace without steps.
    """
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or verdict.kind not in ("starved", "loss") or verdict.loss is None:
        return None
    loss = verdict.loss
    if loss.cause in CAUSE_OF and CAUSE_OF[loss.cause].changed_by == "the late rank":
        return None  # No finding names the late rank, so the user would not know which rank to look at.
    is_unexplained = loss.owner == "idle" and loss.cause in (None, "unattributed")
    if is_unexplained or any(_is_about(finding, loss.cause) for finding in result.findings):
        return None
    total = f"each {fmt.duration_ms(verdict.step.value)} step" if verdict.step.value else "the recorded time"
    size = f"up to {fmt.duration_ms(loss.ms)}, {fmt.share(loss.share)} of {total}"
    return causes.helps(loss.owner, loss.cause).rstrip("."), size


def _is_about(finding: Finding, cause: str | None) -> bool:
    """Return whether a finding is about lost time of a cause, or asks for any change."""
    return finding.claims != "caution" or (cause is not None and cause in finding.explains.causes)


def findings_on_loss(result: RunResult) -> list[tuple[int, Finding]]:
    """Return the findings that explain the largest loss, with their numbers."""
    verdict = judge(result.lead) if result.lead is not None else None
    cause = verdict.loss.cause if verdict is not None and verdict.kind in ("starved", "loss") and verdict.loss else None
    return [(number, finding) for number, finding in numbered(result) if cause is not None and cause in finding.explains.causes]


def plan_title(result: RunResult) -> str | None:
    """Return a plan's effect, such as "Plan: 40.0 ms → ≈ 28.0 ms per step with 3 changes".

    It is None without a plan, and if the plan lacks the headline's change because no replay predicts this change.
    """
    first = lead_finding(result)
    if not result.plan:
        return None
    if first is not None and not first.ends_the_run and first.rule not in {step.rule for step in result.plan}:
        return None
    return f"Plan: {_planned(result)} per step with {fmt.many(len(result.plan), 'change')}"


def planned_steps(result: RunResult) -> str:
    """Return the step time now and after the plan, such as "40.0 → ≈ 28.0 ms"; "" without a plan."""
    return _planned(result) if plan_title(result) is not None else ""


def _planned(result: RunResult) -> str:
    last = result.plan[-1]
    if last.predicted_high_ms > MAX_RANGE_RATIO * last.predicted_low_ms:
        between = fmt.span_ms(last.predicted_low_ms, last.predicted_high_ms)
        return f"{about_now(result)}{fmt.duration_ms(result.plan[0].before_ms)} → {between}"
    return fmt.step_change(result.plan[0].before_ms, last.predicted_step_ms, about=about_now(result))


def _after_all(last: PlanStep) -> str:
    """Return the step time after a plan: "≈ 28.0 ms", or a range if the prediction is too wide."""
    if last.predicted_high_ms > MAX_RANGE_RATIO * last.predicted_low_ms:
        return fmt.span_ms(last.predicted_low_ms, last.predicted_high_ms)
    return f"≈\u00a0{fmt.duration_ms(last.predicted_step_ms)}"


def plan_heading(result: RunResult) -> str | None:
    """Return ``plan_title`` and the level of the plan's intervals; None for a single change."""
    title = plan_title(result) if len(result.plan) > 1 else None
    return f"{title} (80\u00a0% intervals in brackets)" if title else None


def plan_bar(result: RunResult, after_ms: float | None) -> PlannedStep | None:
    """Return the bar of the step after the whole plan.

    It is None if the plan hardly saves more than the first change. ``after_ms`` is the step time after the first change; None if it is not predicted.
    """
    step_ms = best_ms(result)
    if plan_title(result) is None or not step_ms:
        return None
    last = result.plan[-1]
    if last.predicted_step_ms > (1 - MIN_PLAN_SAVING) * (after_ms or step_ms):
        return None
    changes = {1: "the change", 2: "both changes"}.get(len(result.plan), f"all {len(result.plan)} changes")
    return PlannedStep(f"{changes}: {fmt.speedup(step_ms / last.predicted_step_ms)}", _after_all(last), last.predicted_step_ms)


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
    """Return a code change as a diff without file names and line numbers.

    The first line says whether names and values are from the run or only an example.
    """
    before, after = (_ALIGNED_COMMENT.sub("  #", text).splitlines() for text in (change.before, change.after))
    lines = [WITH_NAMES if change.of_run else FOR_EXAMPLE]
    for _, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        is_unchanged = before[a:b] == after[c:d]
        lines += [f"  {line}" for line in before[a:b]] if is_unchanged else [f"- {line}" for line in before[a:b]]
        lines += [] if is_unchanged else [f"+ {line}" for line in after[c:d]]
    return "\n".join(printable(line, allowed="\t") for line in lines)  # Users paste it into a terminal or an editor.
