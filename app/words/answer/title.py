"""The Verdict's headline for each choice of changes: the first change, its steps and its speedup."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sawtooth.analysis import reading_order
from sawtooth.analysis.run.model import Finding, RunResult, may_gain_nothing
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.staircase import Staircase, StairStep
from sawtooth.app import format as fmt
from sawtooth.app.one_unit import in_one_unit
from sawtooth.app.words import advice, headline, predicted_gain, telemetry
from sawtooth.app.words import run as run_words
from sawtooth.app.words.answer.change_code import cost, instead, number_word
from sawtooth.app.words.answer.headline_length import MAX_WORDS, shortened, split, words
from sawtooth.app.words.answer.later_change import why_not_first
from sawtooth.app.words.answer.step import answer_of, avoided_in_words
from sawtooth.app.words.answer.waits import also_removed, waits_shortened

CAUSE = "Cause: "  # The browser shows it in bold.
MIN_GAIN = 0.0005  # Share of the step. A change that gains less only prepares another change.
_BEFORE_NUMBER = re.compile(r"\b(rank|GPU) (?=\d)")  # Such a space must not break the line.

Piece = tuple[str, str]  # The kind of a text (text, then, badge or good) and the text.


@dataclass(frozen=True)
class Title:
    """The headline's pieces, the line on all changes (``whole``), and the line on the cause (``under``)."""

    pieces: list[Piece]
    whole: str
    under: str

    @property
    def text(self) -> str:
        """The headline as one text."""
        return "".join(text for _, text in self.pieces)


def title(stairs: Staircase | None, choice: int, result: RunResult) -> Title:
    """Return the headline for ``choice`` and the lines below it."""
    shown = _title(stairs, choice, result)
    return replace(shown, whole=in_one_unit(shown.whole), under=in_one_unit(shown.under))


def _title(stairs: Staircase | None, choice: int, result: RunResult) -> Title:
    if stairs is None or not choice:
        return _without_change(result, selectable=stairs is not None and bool(stairs.changes))
    if choice == first_choice(stairs, result) and (limit := first_without_bar(stairs, result)) is not None:
        return _limit(limit, stairs, choice, result)
    findings, first = chosen(stairs, choice, result), first_gain(stairs, choice)
    lead = next(finding for finding in findings if finding.rule == stairs.changes[first.bit_length() - 1])
    steps = stairs.now, stairs.choices[first]
    pieces = _change(headline.action(lead), headline.about_now(result), *steps)
    is_unsure = all(finding.confidence == "low" for finding in findings)
    under = (
        _cause(lead, result, steps=steps),
        avoided_in_words(*steps),
        also_removed(lead, result, *steps),
        "The prediction has low confidence." if is_unsure else "",
        "The trace file is cut off." if headline.is_cut_off(result) else "",
        headline.between_steps(result),
    )
    rules = [finding.rule for finding in findings]
    opens_with = choice == first_choice(stairs, result)
    larger = why_not_first(result, lead, rules, stairs.now.ms, stairs.choices[choice].ms) if opens_with else ""
    parts = _title_parts(stairs, choice, first, findings, result) or instead(lead)
    return Title(pieces, " ".join(filter(None, (parts, larger))), " ".join(filter(None, under)))


def first_choice(stairs: Staircase, result: RunResult) -> int:
    """Return the choice of changes that a page begins with: the plan, else the headline's change.

    It is 0 (no change) for a healthy run. Bit i of a choice stands for change i of the staircase.
    """
    if headline.healthy(result) is not None:
        return 0
    lead = reading_order.lead_finding(result)
    if stairs.planned:
        return stairs.planned_choice
    return 1 << stairs.changes.index(lead.rule) if lead is not None and lead.rule in stairs.changes else 0


def chosen(stairs: Staircase, choice: int, result: RunResult) -> list[Finding]:
    """Return the findings of ``choice`` in the order of the staircase."""
    by_rule = {finding.rule: finding for finding in result.findings}
    return [by_rule[rule] for i, rule in enumerate(stairs.changes) if choice >> i & 1]


def first_without_bar(stairs: Staircase, result: RunResult) -> Finding | None:
    """Return the run's first change if it has no bar because only an upper limit of its gain is known.

    Else None.
    """
    lead = reading_order.lead_finding(result)
    if lead is None or lead.claims != "ceiling" or lead.rule in stairs.changes or lead.ends_the_run:
        return None
    return lead if lead.fed_every_ms is None and lead.gain_ms < stairs.now.ms else None


def _limit(lead: Finding, stairs: Staircase, choice: int, result: RunResult) -> Title:
    """Return the headline of a first change without a bar, and the step after the changes that have bars."""
    now_ms, changed = stairs.now.ms, stairs.choices[choice]
    upper_limit = f"up to {fmt.factor(now_ms / (now_ms - lead.gain_ms))}"
    pieces = [("text", f"{shortened(headline.action(lead))}: "), ("badge", upper_limit)]
    subject = {1: "the change", 2: "both changes"}.get(choice.bit_count(), "the changes")
    whole = (
        f"It saves up to {fmt.duration_ms(lead.gain_ms)} of each {headline.about_now(result)}{fmt.duration_ms(now_ms)} step. "
        f"With {subject} below instead: {after(now_ms, changed)}, {factor(now_ms, changed)}."
    )
    under = (
        _cause(lead, result),
        "The trace file is cut off." if headline.is_cut_off(result) else "",
        headline.between_steps(result),
    )
    return Title(pieces, whole, " ".join(filter(None, under)))


def factor(now_ms: float, changed: StairStep) -> str:
    """Return how many times faster a step is, with the range, such as "6.6 × (5.2 to 7.9)".

    It is only an upper limit ("up to …") for a change that may gain nothing.
    """
    likely = fmt.speedup(now_ms / changed.ms)
    if changed.low_ms is None or changed.high_ms is None:
        return likely
    if may_gain_nothing(changed.high_ms, now_ms):
        return f"up to {fmt.factor(now_ms / changed.low_ms)}"
    low, high = fmt.number(now_ms / changed.high_ms, 2), fmt.number(now_ms / changed.low_ms, 2)
    return likely if low == high or not likely.endswith("×") else f"{likely} ({low} to {high})"


def first_gain(stairs: Staircase, choice: int) -> int:
    """Return ``choice`` up to the first change with a gain.

    The changes before that change only prepare it.
    """
    for i in range(len(stairs.changes)):
        part = choice & ((1 << (i + 1)) - 1)
        if part and choice >> i & 1 and stairs.choices[part].ms < (1 - MIN_GAIN) * stairs.now.ms:
            return part
    return choice


def _change(action: str, about: str, now: StairStep, changed: StairStep) -> list[Piece]:
    """Return the pieces of a change: its action, the step before and after it, and the speedup."""
    return [*_numbers(action, about, now.ms, after(now.ms, changed)), ("badge", factor(now.ms, changed))]


def after(now_ms: float, changed: StairStep) -> str:
    """Return the step time after a change, such as "≈ 24.4 ms", or "≥ 24.4 ms" if it is only a limit."""
    return f"{'≥' if changed.limit else '≈'}\u00a0{fmt.part_ms(now_ms, changed.ms)}"


def _numbers(action: str, about: str, now_ms: float, after: str) -> list[Piece]:
    """Return the action and the step before and after it, cut to MAX_WORDS; equal units are written once."""
    before = fmt.duration_ms(now_ms)
    number, unit = before.split("\u00a0")
    start = f"{about}{number if after.split()[-1] == unit else before} → "
    if words(f"{action} {start} {after}") > MAX_WORDS:
        start = "→ "
    headline = _BEFORE_NUMBER.sub("\\1\u00a0", shortened(action, MAX_WORDS - words(f"{start} {after}")))
    return [("text", f"{headline}: {start}"), ("then", after), ("text", " ")]


def _title_parts(stairs: Staircase, choice: int, first: int, findings: Sequence[Finding], result: RunResult) -> str:
    """Return the line about all chosen changes: the step after them, and the first one's cost."""
    changed, count = stairs.choices[choice], choice.bit_count()
    total = len(stairs.changes) if choice & ~stairs.planned_choice else stairs.planned
    preparing = [headline.action(finding) for finding in findings[: first.bit_count() - 1]]
    sentences = [f"First: {', '.join(preparing)}."] if preparing else []
    if choice == first:
        return " ".join(sentences)
    subject = f"{number_word(count).capitalize()} of {number_word(total)}"
    if count == total or choice == first_choice(stairs, result):
        subject = "Both" if count == 2 else f"All {number_word(count)}"
    after_all = f"≈\u00a0{fmt.part_ms(stairs.now.ms, changed.ms)} per step, {factor(stairs.now.ms, changed)}"
    sentences.append(f"{subject} changes: {after_all}.")
    lines = cost(findings[first.bit_count() - 1])
    return " ".join([*sentences, *([f"The first takes {lines} of code."] if lines else [])])


def _cause(finding: Finding, result: RunResult, steps: tuple[StairStep, StairStep] | None = None) -> str:
    """Return what a change removes: the waits that it shortens, or else the finding's title.

    ``steps`` are the step before and after the change. Without them, the waits are not known.
    """
    if "late_rank" in finding.explains.topics:  # Waits of the late rank do not explain why the other ranks wait for it.
        return CAUSE + f"{fmt.ended(fmt.spaced(finding.title))} {_delay_beyond_gain(finding, result)}".strip()
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or verdict.step.value is None or verdict.kind == "unrepresentative":
        included = [] if reading_order.lead_finding(result) is finding else [finding]
        return CAUSE + (advice.below(result, included) or run_words.first_line(result))
    waits = waits_shortened(finding, result, *steps) if steps is not None else ""
    waiting_time = _waiting_time(result, steps[0]) if steps is not None and steps[1].limit else ""
    return CAUSE + (waits or fmt.ended(fmt.spaced(f"{finding.title}{waiting_time}")))


def _delay_beyond_gain(finding: Finding, result: RunResult) -> str:
    """Return why a straggler's delay exceeds the predicted gain; "" if delay and gain are about equal."""
    step_ms, after_ms = reading_order.best_ms(result), finding.predicted_step_ms
    if result.communication is None or not result.communication.stragglers or step_ms is None or after_ms is None:
        return ""
    return predicted_gain.delay_and_gain(result.communication.stragglers[0], step_ms - after_ms)


def _waiting_time(result: RunResult, now: StairStep) -> str:
    """Return how long the GPU waits for what the first change names, as a clause; "" if it names no wait."""
    answer = answer_of(result, result.lead)
    ms = sum(part_ms for owner, cause, part_ms in now.parts if answer and owner == "idle" and cause in answer.names)
    return f"; the GPU waits {fmt.duration_ms(ms)} for it" if ms else ""


def _without_change(result: RunResult, *, selectable: bool) -> Title:
    """Return the headline of a run for which no change is included: healthy, withdrawn, or no gain known."""
    if headline.healthy(result) is not None:
        return _healthy(result)
    under, lead = advice.below(result) or "", reading_order.lead_finding(result)
    if (warning := telemetry.first_finding(result)) is not None:
        utilization = telemetry.busiest(result)
        effect = telemetry.job_slowed(result) or (f"{utilization}." if utilization else "")
        cause = f"{CAUSE}{fmt.spaced(fmt.ended(warning.title))} {effect}".strip()
        return Title([("text", fmt.as_title(headline.action(warning)))], "", cause)
    head, details = split(headline.on_poster(result))
    if (withdrawn := result.withdrawn_by) is not None:
        under = withdrawn.sentence  # The page shows the advice below.
    elif selectable and lead is None:
        under = f"{under} Select a change to see its gain.".strip()
    return Title([("text", fmt.as_title(head))], "", " ".join(filter(None, (details, under if under not in details else ""))))


def _healthy(result: RunResult) -> Title:
    step_ms = reading_order.best_ms(result) or 1.0
    largest_gain_ms = reading_order.largest_sure_gain(result.findings)
    if largest_gain_ms:
        gain = f"no change is certain to save more than {fmt.share(largest_gain_ms / step_ms)}"
    elif any(finding.claims == "gain" for finding in result.findings):
        gain = f"no change is certain to shorten the {fmt.duration_ms(step_ms)} step"
    else:
        gain = f"no change found that shortens the {fmt.duration_ms(step_ms)} step"
    busy = (headline.healthy(result) or "").removeprefix("Healthy: ").partition("; ")[0]
    busy = f"{busy[0].upper()}{busy[1:]}."
    under = advice.below(result) or ""
    start, _, details = under.partition(". ")
    under = details if busy.startswith(start) else under  # The busy share must not appear twice.
    return Title([("good", "Healthy:"), ("text", f" {gain}")], "", f"{busy} {under}".strip())
