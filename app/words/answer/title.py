"""The Verdict's headline for each choice of changes.

It always has the same form: the first change, the step now and after it, and its factor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sawtooth.analysis import reading_order
from sawtooth.analysis.run.model import Finding, RunResult, may_gain_nothing
from sawtooth.analysis.run.verdict import RunJudgement, judge
from sawtooth.analysis.staircase import Staircase, StairStep
from sawtooth.app import format as fmt
from sawtooth.app.words import advice, headline, predicted_gain, telemetry
from sawtooth.app.words import run as run_words
from sawtooth.app.words.answer.change_code import cost, count_added_lines, instead, number_word
from sawtooth.app.words.answer.headline_length import MAX_WORDS, shortened, split, words
from sawtooth.app.words.answer.step import MIN_WAIT_SHARE, answer_of, avoided_in_words, avoided_ms

CAUSE = "Cause: "  # the browser sets it in bold
MIN_GAIN = 0.0005  # share of the step: a change that gains less only prepares another one
_NUMBERED = re.compile(r"\b(rank|GPU) (?=\d)")  # a line does not break within "rank 1"

Piece = tuple[str, str]  # the kind of text (text, then, badge or good) and the text


@dataclass(frozen=True)
class Title:
    """The headline's pieces, the line about all changes, and the line with the cause.

    The line about all changes is "" for fewer than two changes.
    """

    pieces: list[Piece]
    whole: str
    under: str

    @property
    def text(self) -> str:
        """The headline as one text."""
        return "".join(text for _, text in self.pieces)


def title(stairs: Staircase | None, choice: int, result: RunResult) -> Title:
    """Return the headline for ``choice`` and the lines below it."""
    if stairs is None or not choice:
        return _without_change(result, selectable=stairs is not None and bool(stairs.changes))
    if choice == first_choice(stairs, result) and (limit := limit_first(stairs, result)) is not None:
        return _limit(limit, stairs, choice, result)
    findings, first = chosen(stairs, choice, result), first_gain(stairs, choice)
    lead = next(finding for finding in findings if finding.rule == stairs.changes[first.bit_length() - 1])
    pieces = _change(headline.action(lead), stairs.now.ms, stairs.choices[first])
    unsure = all(finding.confidence == "low" for finding in findings)
    limits = "The prediction has low confidence." if unsure else ""
    cut_off = "The trace file is cut off." if headline.is_cut_off(result) else ""
    under = (
        _cause(lead, result, steps=(stairs.now, stairs.choices[first])),
        avoided_in_words(stairs.now, stairs.choices[first]),
        limits,
        cut_off,
        headline.between_steps(result),
    )
    larger = _larger_later(stairs, choice, lead, result) if choice == first_choice(stairs, result) else ""
    whole = _title_parts(stairs, choice, first, findings, result) or instead(lead)
    return Title(pieces, " ".join(filter(None, (whole, larger))), " ".join(filter(None, under)))


def first_choice(stairs: Staircase, result: RunResult) -> int:
    """Return the choice of changes that a page begins with: the plan, else the headline's change.

    The choice is 0 (no change) for a healthy run.
    """
    if headline.healthy(result) is not None:
        return 0
    lead = reading_order.leading(result)
    if stairs.planned:
        return stairs.planned_choice
    return 1 << stairs.changes.index(lead.rule) if lead is not None and lead.rule in stairs.changes else 0


def chosen(stairs: Staircase, choice: int, result: RunResult) -> list[Finding]:
    """Return the findings of ``choice`` in order."""
    by_rule = {finding.rule: finding for finding in result.findings}
    return [by_rule[rule] for i, rule in enumerate(stairs.changes) if choice >> i & 1]


def limit_first(stairs: Staircase, result: RunResult) -> Finding | None:
    """Return the run's first change if it has only an upper limit, and therefore no bar; else None."""
    lead = reading_order.leading(result)
    if lead is None or lead.claims != "ceiling" or lead.rule in stairs.changes or lead.ends_the_run:
        return None
    return lead if lead.fed_every_ms is None and lead.gain_ms < stairs.now.ms else None


def _limit(lead: Finding, stairs: Staircase, choice: int, result: RunResult) -> Title:
    """Return the headline of a first change without a bar, and the step after the changes that have bars."""
    now_ms, changed = stairs.now.ms, stairs.choices[choice]
    most = f"up to {fmt.factor(now_ms / (now_ms - lead.gain_ms))}"
    pieces = [("text", f"{shortened(headline.action(lead), MAX_WORDS)}: "), ("badge", most)]
    subject = "the change" if choice.bit_count() == 1 else "both changes" if choice.bit_count() == 2 else "the changes"
    whole = (
        f"It saves up to {fmt.duration_ms(lead.gain_ms)} of each {fmt.duration_ms(now_ms)} step. "
        f"With {subject} below instead: {after(now_ms, changed)}, {factor(now_ms, changed)}."
    )
    under = (
        _cause(lead, result),
        "The trace file is cut off." if headline.is_cut_off(result) else "",
        headline.between_steps(result),
    )
    return Title(pieces, whole, " ".join(filter(None, under)))


def factor(now_ms: float, changed: StairStep) -> str:
    """Return how many times faster a step is, with the range, such as "6.6 × (5.2–7.9)".

    It says "up to" for a change that may gain nothing.
    """
    likely = fmt.speedup(now_ms / changed.ms)
    if changed.low_ms is None or changed.high_ms is None:
        return likely
    if may_gain_nothing(changed.high_ms, now_ms):
        return f"up to {fmt.factor(now_ms / changed.low_ms)}"
    least, most = fmt.number(now_ms / changed.high_ms, 2), fmt.number(now_ms / changed.low_ms, 2)
    return likely if least == most or not likely.endswith("×") else f"{likely} ({least}–{most})"


def first_gain(stairs: Staircase, choice: int) -> int:
    """Return ``choice`` up to its first change with a gain; the changes before that one only prepare it."""
    for i in range(len(stairs.changes)):
        part = choice & ((1 << (i + 1)) - 1)
        if part and choice >> i & 1 and stairs.choices[part].ms < (1 - MIN_GAIN) * stairs.now.ms:
            return part
    return choice


def _change(named: str, now_ms: float, changed: StairStep) -> list[Piece]:
    """Return a change, the step before and after it in one unit if possible, and its factor."""
    return [*_numbers(named, now_ms, after(now_ms, changed)), ("badge", factor(now_ms, changed))]


def after(now_ms: float, changed: StairStep) -> str:
    """Return the step after a change, such as "≈ 24.4 ms", or "≥ 24.4 ms" if it is only a limit."""
    return f"{'≥' if changed.limit else '≈'}\u00a0{fmt.part_ms(now_ms, changed.ms)}"


def _numbers(named: str, now_ms: float, after: str) -> list[Piece]:
    whole = fmt.duration_ms(now_ms)
    before, unit = whole.split("\u00a0")
    start = f"{before if after.split()[-1] == unit else whole} → "
    if words(f"{named} {start} {after}") > MAX_WORDS:
        start = "→ "
    headline = _NUMBERED.sub("\\1\u00a0", shortened(named, MAX_WORDS - words(f"{start} {after}")))
    return [("text", f"{headline}: {start}"), ("then", after), ("text", " ")]


def _title_parts(stairs: Staircase, choice: int, first: int, findings: Sequence[Finding], result: RunResult) -> str:
    """Return what precedes the first change, the step after all chosen ones, and the first one's cost."""
    changed, count = stairs.choices[choice], choice.bit_count()
    every = len(stairs.changes) if choice & ~stairs.planned_choice else stairs.planned
    prepared = [headline.action(finding) for finding in findings[: first.bit_count() - 1]]
    sentences = [f"First: {', '.join(prepared)}."] if prepared else []
    if choice != first:
        lines, every_one = cost(findings[first.bit_count() - 1]), choice == first_choice(stairs, result) or count == every
        all_of = "Both" if count == 2 else f"All {number_word(count)}"
        named = all_of if every_one else f"{number_word(count).capitalize()} of {number_word(every)}"
        sentences.append(
            f"{named} changes: ≈\u00a0{fmt.part_ms(stairs.now.ms, changed.ms)} per step, {factor(stairs.now.ms, changed)}."
        )
        sentences += [f"The first takes {lines} of code."] if lines else []
    return " ".join(sentences)


def _larger_later(stairs: Staircase, choice: int, lead: Finding, result: RunResult) -> str:
    """Return why a later change with a clearly larger predicted gain is not the first; "" without one.

    The changes of ``choice`` do not count, because the page shows the step after them.
    """
    chosen_rules = {finding.rule for finding in chosen(stairs, choice, result)}
    larger = [
        (number, finding)
        for number, finding in advice.numbered(result)
        if finding.claims == "gain"
        and finding.confidence != "low"
        and not finding.may_gain_nothing
        and finding.rule not in chosen_rules
        and finding.predicted_step_ms is not None
        and finding.gain_ms > advice.NOTICEABLE * max(lead.gain_ms, stairs.now.ms - stairs.choices[choice].ms)
    ]
    if lead.claims != "gain" or not larger:
        return ""
    number, finding = max(larger, key=lambda each: each[1].gain_ms)
    why = _why_later(finding, lead)
    reached = f"≈\u00a0{fmt.part_ms(stairs.now.ms, finding.predicted_step_ms or 0.0)}"
    named = headline.action(finding)
    return f"Change {number} ({named[0].lower()}{named[1:]}) could reach {reached}, but {why}." if why else ""


def _why_later(finding: Finding, lead: Finding) -> str:
    """Return why ``finding`` comes after ``lead``, as a clause; "" if no reason is known."""
    reasons = []
    if "late_rank" in lead.explains.topics:
        reasons.append("works around the rank's delay instead of removing its cause")
    elif reading_order.sure_gain_ms(lead) > reading_order.sure_gain_ms(finding):
        reasons.append("is less sure to gain as much")
    if (lines := count_added_lines(finding)) > count_added_lines(lead):
        reasons.append(f"takes {number_word(lines)} line{'' if lines == 1 else 's'} of code")
    if not reasons and "choice" in finding.explains.topics:
        reasons.append("has costs of its own")
    return " and ".join(reasons)


def _waits(finding: Finding, result: RunResult, verdict: RunJudgement, now: StairStep, after: StairStep) -> str:
    """Return the waits that a change shortens, as a sentence.

    It is "" if its finding names all of them, or if the change avoids more compute than waits.
    """
    lost = {(part.owner, part.cause) for part in verdict.parts if part.lost}
    after_ms = {(owner, cause): ms for owner, cause, ms in after.parts}
    waits = [
        (ms, ms - after_ms.get((owner, cause), 0.0), owner, cause) for owner, cause, ms in now.parts if (owner, cause) in lost
    ]
    saved_ms = sum(saved for _, saved, _, _ in waits)
    named = [wait for wait in waits if wait[1] >= MIN_WAIT_SHARE * saved_ms > 0]
    if len(named) < 2 or avoided_ms(now, after) > saved_ms or all(cause in finding.explains.causes for *_, cause in named):
        return ""
    named.sort(key=lambda wait: -wait[0])
    answer = answer_of(result, result.lead)
    return (
        f"Of each step, the GPU waits {answer.listed([(owner, cause, ms) for ms, _, owner, cause in named])}." if answer else ""
    )


def _cause(finding: Finding, result: RunResult, steps: tuple[StairStep, StairStep] | None = None) -> str:
    """Return what a change removes.

    ``steps`` are the step before and after the change. With them, the text names all waits that the change shortens. Without
    them, or if the finding already names these waits, the text is the finding's title.
    """
    if "late_rank" in finding.explains.topics:  # the waits of the shown rank do not explain why the others wait for it
        return CAUSE + f"{fmt.ended(fmt.spaced(finding.title))} {_of_the_delay(finding, result)}".strip()
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None or verdict.step.value is None or verdict.kind == "unrepresentative":
        included = [] if reading_order.leading(result) is finding else [finding]
        return CAUSE + (advice.below(result, included) or run_words.first_line(result))
    waits = _waits(finding, result, verdict, *steps) if steps is not None else ""
    for_it = _waits_for(result, steps[0]) if steps is not None and steps[1].limit else ""
    return CAUSE + (waits or fmt.ended(fmt.spaced(f"{finding.title}{for_it}")))


def _of_the_delay(finding: Finding, result: RunResult) -> str:
    """Return why a straggler's delay exceeds the predicted gain; "" if both are about equal."""
    step_ms, after_ms = reading_order.best_ms(result), finding.predicted_step_ms
    if result.communication is None or not result.communication.stragglers or step_ms is None or after_ms is None:
        return ""
    return predicted_gain.delay_and_gain(result.communication.stragglers[0], step_ms - after_ms)


def _waits_for(result: RunResult, now: StairStep) -> str:
    """Return how long the GPU waits for what the first change names; "" if it names no wait."""
    answer = answer_of(result, result.lead)
    ms = sum(part_ms for owner, cause, part_ms in now.parts if answer and owner == "idle" and cause in answer.names)
    return f"; the GPU waits {fmt.duration_ms(ms)} for it" if ms else ""


def _without_change(result: RunResult, *, selectable: bool) -> Title:
    """Return the headline of a run for which no change is included: healthy, withdrawn, or no gain known."""
    if headline.healthy(result) is not None:
        return _healthy(result)
    under, lead = advice.below(result) or "", reading_order.leading(result)
    if (warning := telemetry.first_finding(result)) is not None:
        used = telemetry.busiest(result)
        costs = telemetry.job_slowed(result) or (f"{used}." if used else "")
        cause = f"{CAUSE}{fmt.spaced(fmt.ended(warning.title))} {costs}".strip()
        return Title([("text", fmt.ended(headline.action(warning)))], "", cause)
    head, rest = split(headline.on_poster(result))
    if (withdrawn := result.withdrawn_by) is not None:
        under = withdrawn.sentence  # the page shows the advice below
    elif selectable and lead is None:
        under = f"{under} Select a change to see its gain.".strip()
    return Title([("text", head)], "", " ".join(filter(None, (rest, under if under not in rest else ""))))


def _healthy(result: RunResult) -> Title:
    step_ms = reading_order.best_ms(result) or 1.0
    most = reading_order.largest_sure_gain(result.findings)
    unsure = any(finding.claims == "gain" for finding in result.findings)
    gain = (
        f"no change is certain to save more than {fmt.share(most / step_ms)}"
        if most
        else f"no change {'is certain to shorten' if unsure else 'found that shortens'} the {fmt.duration_ms(step_ms)} step"
    )
    busy = (headline.healthy(result) or "").removeprefix("Healthy: ").partition("; ")[0]
    busy = f"{busy[0].upper()}{busy[1:]}."
    under = advice.below(result) or ""
    start, _, rest = under.partition(". ")
    under = rest if busy.startswith(start) else under  # The sentence with the busy share already contains it.
    return Title([("good", "Healthy:"), ("text", f" {gain}.")], "", f"{busy} {under}".strip())
