"""The staircase in words and colours: headline, bars and facts for every choice of changes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sawtooth.analysis import reading_order
from sawtooth.analysis.combined_changes import CombinedPrediction, mfu_of
from sawtooth.analysis.knowledge.owners import HOST_LOADING, LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import Finding, RunResult, may_gain_nothing
from sawtooth.analysis.run.verdict import judge
from sawtooth.analysis.staircase import Parts, Staircase, StairStep
from sawtooth.app import format as fmt
from sawtooth.app.theme import MUTED, Colour, colour_of, place_of
from sawtooth.app.words import advice, evidence, headline, predicted_gain, savings
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as run_words

MOST_WORDS = 12  # of a headline, so that it is read at a glance; the rest is on the second line
WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LOST = (*LOST_OWNERS, OUTSIDE_PROFILE, HOST_LOADING)  # owners of time in which the GPU, or the host without one, only waits
AFTER, NOW = "after", "now"  # owners of a predicted and of a measured step whose parts are not known
SEEN = 0.0005  # share of the step: narrower parts are invisible
_WORD = re.compile(r"\w")
_CLAUSES = ("; ", ": ", ". ", ", ")

Piece = tuple[str, str]  # the kind of text (text, then, badge, wide or rest) and the text


@dataclass(frozen=True)
class Asked:
    """Facts for costs: remaining steps, price of a GPU-hour, and the GPU's power in W while it waits."""

    steps: float | None = None
    price: float | None = None
    waiting_w: float | None = None


def of_run(result: RunResult, computed: Staircase | None) -> Staircase | None:
    """Return the staircase to draw: ``computed``, or the headline's change alone if no replay contains it.

    None if the run has no step time.
    """
    change, step_ms = reading_order.leading(result), reading_order.best_ms(result)
    replayed = computed is not None and (change is None or change.rule in computed.changes or not change.predicted_step_ms)
    if computed is not None and replayed:
        return computed
    if not step_ms or result.withdrawn_by is not None:
        return None
    reading = result.metrics["best_step_time_ms"]
    now = computed.now if computed is not None else StairStep(step_ms, reading.low, reading.high, _host(result, step_ms))
    if change is None or change.claims != "gain" or not change.predicted_step_ms:
        return Staircase((), 0, {0: now})
    low, high, after = change.predicted_low_ms, change.predicted_high_ms, change.predicted_step_ms
    return Staircase((change.rule,), 1, {0: now, 1: StairStep(after, low, high, ((AFTER, None, after),))})


def _host(result: RunResult, step_ms: float) -> Parts:
    parts = host_parts(result)
    return tuple((owner, None, ms) for owner, ms in parts.items()) or ((NOW, None, step_ms),)


def first_choice(stairs: Staircase, result: RunResult) -> int:
    """Return the choice of changes that a page begins with: the plan, else the headline's change.

    None of a healthy run.
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


def words(text: str) -> int:
    """Return the number of words of a headline; signs between them are none."""
    return sum(bool(_WORD.search(word)) for word in text.split())


def split(sentence: str) -> tuple[str, str]:
    """Return a headline of at most MOST_WORDS words, and the rest of ``sentence`` for the line below."""
    if words(sentence) <= MOST_WORDS:
        return sentence, ""
    cuts = sorted({match.end() for mark in _CLAUSES for match in re.finditer(re.escape(mark), sentence)}, reverse=True)
    for cut in cuts:
        head = sentence[:cut].rstrip(" ;:,")
        if words(head) <= MOST_WORDS:
            rest = sentence[cut:]
            return fmt.ended(head), fmt.ended(f"{rest[0].upper()}{rest[1:]}")
    kept = sentence.split()
    while words(" ".join(kept)) > MOST_WORDS:
        kept.pop()
    return f"{' '.join(kept)} …", fmt.ended(sentence)


def title(stairs: Staircase | None, choice: int, result: RunResult) -> tuple[list[Piece], str]:
    """Return the headline's pieces for ``choice`` and the line below it."""
    if stairs is None or not choice:
        return _without_change(stairs, result)
    now, then, findings = stairs.now, stairs.choices[choice], chosen(stairs, choice, result)
    low, high = then.low_ms or then.ms, then.high_ms or then.ms
    wide = savings.is_wide(low, high)
    after = fmt.span_ms(low, high) if wide else f"≈\u00a0{fmt.duration_ms(then.ms)}"
    before, unit = fmt.duration_ms(now.ms).split("\u00a0")
    one_unit = after.count("\u00a0") == 1 + after.startswith("≈")  # "637 µs to 1.79 ms" has two units
    before = before if one_unit and after.endswith(f"\u00a0{unit}") else f"{before}\u00a0{unit}"
    numbers: list[Piece] = [("text", f"{before} → "), ("then", after)]
    unsure = wide or any(finding.confidence == "low" for finding in findings)
    badge: Piece = ("wide" if unsure else "badge", _factor(now.ms, then, wide=wide))
    named = headline.action(findings[0])
    whole: list[Piece] = [("text", f"{named}: "), *numbers, ("text", " "), badge]
    if len(findings) == 1 and words("".join(text for _, text in whole)) <= MOST_WORDS:
        return whole, _below(findings, result, name=False)
    count, every = len(findings), stairs.planned or len(stairs.changes)
    how = f" with {_number(count)} change{'' if count == 1 else 's'}"
    if choice != first_choice(stairs, result) and count < every:
        how = f" with {_number(count)} of {_number(every)}"
    return [*numbers, ("rest", " " if wide else " a step "), badge, ("rest", how)], _below(findings, result, name=True)


def _factor(now_ms: float, then: StairStep, *, wide: bool) -> str:
    low, high = then.low_ms or then.ms, then.high_ms or then.ms
    if may_gain_nothing(high, now_ms):
        return f"up to {fmt.factor(now_ms / low)}"
    if wide:
        return f"{fmt.number(now_ms / high, 2)}–{fmt.factor(now_ms / low)}"
    return fmt.speedup(now_ms / then.ms)


def _number(count: int) -> str:
    return WORDS[count] if count < len(WORDS) else fmt.count(count)


def _below(findings: Sequence[Finding], result: RunResult, *, name: bool) -> str:
    """Return the line below: the first change and its cost, why, and how sure the prediction is."""
    first = findings[0]
    cost = _cost(first)
    named = headline.action(first)
    start = f"First: {named[0].lower() if named[:2].istitle() else named[0]}{named[1:]}{f' ({cost})' if cost else ''}."
    unsure = [finding for finding in findings if finding.confidence == "low"]
    limits = "The prediction has low confidence." if len(unsure) == len(findings) else ""
    between = headline.between_steps(result) or ""
    why = advice.below(result, [] if reading_order.leading(result) is first else [first]) or run_words.first_line(result)
    why = why.removesuffix(between).strip() if between and why.endswith(between) else why
    cut_off = "The trace file is cut off." if headline.is_cut_off(result) else ""
    return " ".join(filter(None, (start if name else "", why, limits, cut_off, between)))


def _cost(finding: Finding) -> str:
    """Return what a change costs in lines, such as "one line"; "" without code."""
    if not finding.changes:
        return ""
    added = sum(
        line.startswith("+ ") and bool(line[2:].split("#")[0].strip()) for line in advice.diff(finding.changes[0]).splitlines()
    )
    return f"{_number(added)} line{'' if added == 1 else 's'}" if added else ""


def _without_change(stairs: Staircase | None, result: RunResult) -> tuple[list[Piece], str]:
    """Return the headline of a run for which no change is included: healthy, withdrawn, or no gain known."""
    under = advice.below(result) or ""
    if headline.healthy(result) is not None:
        most = reading_order.largest_sure_gain(result.findings)
        step_ms = reading_order.best_ms(result) or 1.0
        gain = (
            f"no sure change saves more than {fmt.share(most / step_ms)}" if most else "no sure change would shorten the step"
        )
        line = headline.healthy(result) or ""
        busy = line.removeprefix("Healthy: ").partition("; ")[0]
        return [("text", f"Healthy: {gain}.")], f"{busy[0].upper()}{busy[1:]}. {under}".strip()
    head, rest = split(headline.on_poster(result))
    if stairs is not None and stairs.changes and reading_order.leading(result) is None and not result.withdrawn_by:
        under = f"{under} Select a change to see what it gives.".strip()
    return [("text", head)], " ".join(filter(None, (rest, under if under not in rest else "")))


def facts(result: RunResult, stairs: Staircase, choice: int, asked: Asked) -> list[tuple[str, str]]:
    """Return the quiet line of facts for ``choice``: label and value."""
    if not choice:
        used = run_words.mfu_fact(result.metrics) if savings.says_mfu(result.metrics) and result.lead is not None else None
        return [*host_words.facts(result, None), *([used] if used is not None else [])]
    then, findings = stairs.choices[choice], chosen(stairs, choice, result)
    mfu = mfu_of(result.lead, findings) if result.lead is not None else None
    forecast = CombinedPrediction(stairs.now.ms, then.ms, mfu, max(result.gpus, 1), then.low_ms, then.high_ms)
    if result.lead is not None:
        forecast = savings.with_known_mfu(forecast, result.lead.metrics)
    return host_words.facts(result, forecast) + savings.lines(
        forecast, None, steps=asked.steps, price_per_gpu_hour=asked.price, waiting_w=asked.waiting_w
    )


def picture(
    result: RunResult, stairs: Staircase | None, asked: Asked, measured: Sequence[tuple[str, str, StairStep]] = ()
) -> dict[str, Any]:
    """Return what the browser draws: the parts' colours, the changes, and the state of every choice.

    ``measured`` has name, address and step of the runs that made changes. Without ``stairs``, only the headline is drawn.
    """
    if stairs is None:
        pieces, under = title(None, 0, result)
        stairs = Staircase((), 0, {0: StairStep(1.0, None, None, ())})
        drawn = picture(result, stairs, asked)
        state = {**drawn["states"]["0"], "title": pieces, "under": under, "text": "", "facts": []}
        return {**drawn, "states": {"0": state}, "busy": [], "bars": False}
    kinds = _kinds([*stairs.choices.values(), *(step for *_, step in measured)])
    states, first = {}, first_choice(stairs, result)
    for choice, step in stairs.choices.items():
        pieces, under = title(stairs, choice, result)
        states[str(choice)] = {
            "ms": step.ms,
            "low": step.low_ms if step.low_ms is not None else step.ms,
            "high": step.high_ms if step.high_ms is not None else step.ms,
            "text": f"≈\u00a0{fmt.duration_ms(step.ms)}" if choice else run_words.step_now(result) or fmt.duration_ms(step.ms),
            "span": fmt.span_ms(step.low_ms, step.high_ms) if step.low_ms is not None and step.high_ms is not None else "",
            "parts": _parts(step, kinds),
            "title": pieces,
            "under": under,
            "tab": headline.tab_title(result, "" if choice == first else "".join(text for _, text in pieces)),
            "facts": facts(result, stairs, choice, asked),
        }
    by_rule = {finding.rule: finding for finding in result.findings}
    return {
        "kinds": [_kind(colour, owner) for colour, owner in kinds],
        "changes": [_change(by_rule[rule], result) for rule in stairs.changes],
        "states": states,
        "first": first,
        "complete": stairs.complete,
        "busy": _busy(result, stairs),
        "bars": True,
        "measured": [
            {"name": name, "address": address, "ms": step.ms, "text": fmt.duration_ms(step.ms), "parts": _parts(step, kinds)}
            for name, address, step in measured
        ],
    }


def _kinds(steps: Sequence[StairStep]) -> list[tuple[Colour, str]]:
    """Return the colours of all parts of ``steps`` with an owner of each, useful time first."""
    keys = {(owner, cause) for step in steps for owner, cause, _ in step.parts}
    ordered = sorted(keys, key=lambda key: place_of(*key))
    return list({colour_of_part(*key): (colour_of_part(*key), key[0]) for key in ordered}.values())


def colour_of_part(owner: str, cause: str | None) -> Colour:
    """Return the colour of a part of a bar, also of a step whose parts are not known."""
    whole = {AFTER: "predicted", NOW: "measured, not divided"}.get(owner)
    return Colour(whole, MUTED.light, MUTED.dark) if whole is not None else colour_of(owner, cause)


def _kind(colour: Colour, owner: str) -> dict[str, Any]:
    return {"label": colour.label, "light": colour.light, "dark": colour.dark, "texture": colour.texture, "lost": owner in LOST}


def _parts(step: StairStep, kinds: Sequence[tuple[Colour, str]]) -> list[tuple[int, float, str]]:
    """Return the parts of a step: the place of their kind, ms, and a text with the time."""
    at = {colour: place for place, (colour, _) in enumerate(kinds)}
    summed: dict[int, float] = {}
    for owner, cause, ms in step.parts:
        summed[at[colour_of_part(owner, cause)]] = summed.get(at[colour_of_part(owner, cause)], 0.0) + ms
    return [(kind, ms, fmt.duration_ms(ms)) for kind, ms in sorted(summed.items()) if ms > SEEN * step.ms]


def _busy(result: RunResult, stairs: Staircase) -> list[str]:
    """Return how long the GPU works and waits in the step now; empty without a GPU."""
    verdict = judge(result.lead) if result.lead is not None else None
    if verdict is None:
        return []
    lost = {(part.owner, part.cause) for part in verdict.parts if part.lost}
    waits = sum(ms for owner, cause, ms in stairs.now.parts if (owner, cause) in lost)
    return [fmt.duration_ms(stairs.now.ms - waits), fmt.duration_ms(waits)]


def _change(finding: Finding, result: RunResult) -> dict[str, Any]:
    heads, rows = evidence.table(finding)
    where = evidence.where(finding)
    return {
        "rule": finding.rule,
        "name": headline.action(finding),
        "title": finding.title,
        "fix": finding.fix,
        "brings": advice.whole(result, finding),
        "unsure": finding.confidence == "low",
        "where": " ".join(filter(None, where)) if where is not None else "",
        "diffs": [[change.framework, advice.diff(change)] for change in finding.changes],
        "evidence": [heads, rows],
        "notes": [text for text in (advice.beside_others(result, finding), finding.prediction_note, finding.risk) if text],
        "sure": predicted_gain.sureness(finding),
    }
