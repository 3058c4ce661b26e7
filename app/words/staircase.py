"""The staircase in words and colours: bars and facts for every choice of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sawtooth.analysis import reading_order
from sawtooth.analysis.knowledge.owners import AVOIDABLE, COMPUTE_OWNERS, HOST_LOADING, LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import StepPart
from sawtooth.analysis.staircase import Parts, Staircase, StairStep
from sawtooth.app import format as fmt
from sawtooth.app.theme import MUTED, Colour, colour_of, place_of
from sawtooth.app.words import advice, evidence, headline, predicted_gain
from sawtooth.app.words import run as run_words
from sawtooth.app.words.answer.change_code import cost
from sawtooth.app.words.answer.cost_facts import CostFacts, facts
from sawtooth.app.words.answer.step import StepAnswer, answer_of
from sawtooth.app.words.answer.title import (
    Title,
    after,
    factor,
    first_choice,
    first_gain,
    first_without_bar,
    title,
)

LOST = (*LOST_OWNERS, OUTSIDE_PROFILE, HOST_LOADING)  # Owners of time in which the GPU (or the host, without a GPU) only waits.
AFTER, NOW = "after", "now"  # Owners of a predicted and of a measured step whose parts are not known.
# Share of the first change's gain. If less of it is avoided compute, the chart does not show this part.
MIN_AVOIDED_SHARE = 0.25
UNDIVIDED_DARK = "#64748B"  # On a dark page, MUTED would look like the gaps between kernels.
PREDICTED_INTERVAL = "80\u00a0% interval"  # What the intervals of predicted steps contain.
MIN_VISIBLE_SHARE = 0.0005  # Share of the step. Narrower parts are invisible.


@dataclass(frozen=True)
class MeasuredChoice:
    """A run that made ``after`` of the changes: its name, the comparison's address, and its step.

    ``about`` is ≈ if the step time is estimated.
    """

    name: str
    address: str
    step: StairStep
    after: int = 0
    about: str = ""


def of_run(result: RunResult, computed: Staircase | None) -> Staircase | None:
    """Return the staircase to draw: ``computed``, or the headline's change alone if ``computed`` lacks it.

    None if the run has no step time.
    """
    change, step_ms = reading_order.lead_finding(result), reading_order.best_ms(result)
    if change is not None and (limited := _limited_staircase(result, computed, change)) is not None:
        return limited
    if computed is not None and (change is None or change.rule in computed.changes or not change.predicted_step_ms):
        return computed
    if not step_ms or result.withdrawn_by is not None:
        return None
    reading = result.metrics["best_step_time_ms"]
    now = computed.now if computed is not None else StairStep(step_ms, reading.low, reading.high, _host(result, step_ms))
    if change is None or change.claims != "gain" or not change.predicted_step_ms:
        return Staircase((), 0, {0: now})
    low, high, after = change.predicted_low_ms, change.predicted_high_ms, change.predicted_step_ms
    return Staircase((change.rule,), 1, {0: now, 1: StairStep(after, low, high, ((AFTER, None, after),))})


def _limited_staircase(result: RunResult, computed: Staircase | None, change: Finding) -> Staircase | None:
    """Return the staircase of a change with an upper limit of its gain.

    It is None if there is a plan or no such limit. The limit is taken from the waits that the finding explains, then from the longest other waits. If the finding explains no
    wait, the limit is taken from the longest compute.
    """
    if computed is None or computed.planned or change.claims != "ceiling" or result.withdrawn_by is not None:
        return None
    now, saved_ms = computed.now, change.gain_ms
    if change.ends_the_run or change.fed_every_ms is not None or headline.is_cut_off(result) or saved_ms >= now.ms:
        return None
    owners = LOST if change.explains.causes else COMPUTE_OWNERS
    shortened = [part for part in now.parts if part[0] in owners]
    remaining = {part[:2]: part[2] for part in now.parts}
    for owner, cause, ms in sorted(shortened, key=lambda part: (part[1] not in change.explains.causes, -part[2])):
        remaining[owner, cause] = max(ms - saved_ms, 0.0)
        saved_ms = max(saved_ms - ms, 0.0)
    if saved_ms:
        return None  # The gain is larger than these parts.
    parts = tuple((owner, cause, ms) for (owner, cause), ms in remaining.items())
    min_ms = sum(remaining.values())
    return Staircase((change.rule,), 1, {0: now, 1: StairStep(min_ms, min_ms, now.ms, parts, limit=True)})


def with_avoidable(stairs: Staircase, result: RunResult) -> Staircase:
    """Return the staircase with the GPU work that the first change removes as a separate part.

    Otherwise a loss inside busy time, such as products in FP32, would have the colour of useful work.
    """
    first = first_gain(stairs, first_choice(stairs, result))
    # The parts after this choice are not known.
    if not first or any(owner == AFTER for owner, *_ in stairs.choices[first].parts):
        return stairs
    compute_after = _compute(stairs.choices[first])
    avoided_ms = sum(max(ms - compute_after.get(owner, 0.0), 0.0) for owner, ms in _compute(stairs.now).items())
    if avoided_ms < MIN_AVOIDED_SHARE * (stairs.now.ms - stairs.choices[first].ms):
        return stairs
    return replace(stairs, choices={choice: _with_avoidable(step, compute_after) for choice, step in stairs.choices.items()})


def now_parts(result: RunResult, stairs: Staircase) -> tuple[StepPart, ...]:
    """Return the parts of the step now, as the chart draws them, largest first."""
    now = with_avoidable(stairs, result).now
    parts = (StepPart(owner, cause, ms, ms / now.ms) for owner, cause, ms in now.parts if ms and owner not in (AFTER, NOW))
    return tuple(sorted(parts, key=lambda part: -part.ms))


def _compute(step: StairStep) -> dict[str, float]:
    return {owner: ms for owner, _, ms in step.parts if owner in COMPUTE_OWNERS}


def _with_avoidable(step: StairStep, compute_after: Mapping[str, float]) -> StairStep:
    """Return ``step`` with the compute above ``compute_after`` (ms by owner) as an avoidable part."""
    parts = [
        (owner, cause, min(ms, compute_after.get(owner, 0.0)) if owner in COMPUTE_OWNERS else ms)
        for owner, cause, ms in step.parts
    ]
    avoided_ms = sum(ms for *_, ms in step.parts) - sum(ms for *_, ms in parts)
    return replace(step, parts=(*parts, (AVOIDABLE, None, avoided_ms)))


def _host(result: RunResult, step_ms: float) -> Parts:
    """Return the parts of the host's step; the whole step as one part if they are not known."""
    parts = host_parts(result)
    return tuple((owner, None, ms) for owner, ms in parts.items()) or ((NOW, None, step_ms),)


def picture(
    result: RunResult, stairs: Staircase | None, cost_facts: CostFacts, measured: Sequence[MeasuredChoice] = ()
) -> dict[str, Any]:
    """Return the values for the browser: the parts' colours, the changes, and the state of every choice.

    ``measured`` are the runs that made changes. Without ``stairs``, only the headline is drawn.
    """
    if stairs is None:
        shown_title = title(None, 0, result)
        stairs = Staircase((), 0, {0: StairStep(1.0, None, None, ())})
        empty_picture = picture(result, stairs, cost_facts)
        state = {**empty_picture["states"]["0"], **_title_values(shown_title), "text": "", "facts": []}
        return {**empty_picture, "states": {"0": state}, "busy": [], "bars": False}
    stairs = with_avoidable(stairs, result)
    now = answer_of(result, result.lead)
    shared = _shared_colours(now) if now is not None else {}
    kinds = _kinds([*stairs.choices.values(), *(run.step for run in measured)], shared)
    names = {colour_of("idle", cause): name for cause, name in now.names.items()} if now is not None else {}
    states, first, without_bar = {}, first_choice(stairs, result), first_without_bar(stairs, result)
    for choice, step in stairs.choices.items():
        shown_title, limit = title(stairs, choice, result), step.limit
        states[str(choice)] = {
            "ms": step.ms,
            "low": step.low_ms if step.low_ms is not None else step.ms,
            "high": step.high_ms if step.high_ms is not None and not limit else step.ms,
            "limit": limit,
            "text": after(stairs.now.ms, step) if choice else run_words.step_time_text(result) or fmt.duration_ms(step.ms),
            # The present step has no span here, because its interval has another level. The details of the step state it.
            "span": fmt.span_ms(step.low_ms, step.high_ms, stairs.now.ms)
            if choice and step.low_ms and step.high_ms and not limit
            else "",
            "parts": _parts(step, kinds, shared),
            "factor": factor(stairs.now.ms, step).partition(" (")[0].replace("up to ", "≤\u00a0" if limit else "up to ")
            if choice
            else "",
            **_title_values(shown_title),
            "tab": headline.tab_title(result, "" if choice == first else shown_title.text),
            "facts": facts(result, stairs, choice, cost_facts),
        }
    by_rule = {finding.rule: finding for finding in result.findings}
    numbers = {finding.rule: number for number, finding in advice.numbered(result)}
    return {
        "kinds": [_kind(colour, owner) | ({"label": names[colour]} if colour in names else {}) for colour, owner in kinds],
        "changes": [{"number": numbers[rule], **_change(by_rule[rule], result)} for rule in stairs.changes],
        "between": advice.numbered_between(result, [*stairs.changes, *([without_bar.rule] if without_bar is not None else [])]),
        "states": states,
        "first": first,
        "complete": stairs.complete,
        "interval": PREDICTED_INTERVAL,
        "busy": [fmt.part_ms(now.step_ms, now.works_ms), fmt.part_ms(now.step_ms, now.waits_ms), now.main_wait]
        if now is not None
        else [],
        "bars": True,
        "measured": [
            {
                "name": run.name,
                "address": run.address,
                "after": run.after,
                "ms": run.step.ms,
                "text": f"{run.about}{fmt.part_ms(stairs.now.ms, run.step.ms)}",
                "factor": factor(stairs.now.ms, run.step).partition(" (")[0],
                "parts": _parts(run.step, kinds, shared),
            }
            for run in measured
        ],
    }


def _title_values(shown_title: Title) -> dict[str, Any]:
    return {"title": shown_title.pieces, "whole": shown_title.whole, "under": shown_title.under}


def _shared_colours(now: StepAnswer) -> dict[Colour, Colour]:
    """Return the colours to draw waits with, by the colours of their causes.

    All waits to which the first change gives one name have the colour of the longest of these waits.
    """
    colour_of_name: dict[str, Colour] = {}
    for part in sorted(now.parts, key=lambda part: -part.ms):
        if part.cause is not None and part.cause in now.names:
            colour_of_name.setdefault(now.names[part.cause], colour_of("idle", part.cause))
    return {colour_of("idle", cause): colour_of_name[name] for cause, name in now.names.items()}


def _kinds(steps: Sequence[StairStep], shared: Mapping[Colour, Colour]) -> list[tuple[Colour, str]]:
    """Return the colours of all parts of ``steps``, each with an owner, useful time first.

    ``shared`` is the result of ``_shared_colours``.
    """
    keys = {(owner, cause) for step in steps for owner, cause, _ in step.parts}
    owners: dict[Colour, str] = {}
    for key in sorted(keys, key=lambda key: place_of(*key)):
        colour = colour_of_part(*key)
        owners[shared.get(colour, colour)] = key[0]
    return list(owners.items())


def colour_of_part(owner: str, cause: str | None) -> Colour:
    """Return the colour of a part of a bar, also of a step whose parts are not known."""
    label = {AFTER: "predicted", NOW: "measured, not divided"}.get(owner)
    return Colour(label, MUTED.light, UNDIVIDED_DARK) if label is not None else colour_of(owner, cause)


def _kind(colour: Colour, owner: str) -> dict[str, Any]:
    return {"label": colour.label, "light": colour.light, "dark": colour.dark, "texture": colour.texture, "lost": owner in LOST}


def _parts(
    step: StairStep, kinds: Sequence[tuple[Colour, str]], shared: Mapping[Colour, Colour]
) -> list[tuple[int, float, str]]:
    """Return the parts of a step: the index of their kind, ms, and the time as text."""
    indices = {colour: index for index, (colour, _) in enumerate(kinds)}
    sums: dict[int, float] = {}
    for owner, cause, ms in step.parts:
        colour = colour_of_part(owner, cause)
        kind = indices[shared.get(colour, colour)]
        sums[kind] = sums.get(kind, 0.0) + ms
    return [(kind, ms, fmt.part_ms(step.ms, ms)) for kind, ms in sorted(sums.items()) if ms > MIN_VISIBLE_SHARE * step.ms]


def _change(finding: Finding, result: RunResult) -> dict[str, Any]:
    heads, rows = evidence.table(finding)
    where = evidence.where(finding)
    return {
        "rule": finding.rule,
        "name": headline.action(finding),
        "cost": cost(finding),
        "title": finding.title,
        "fix": finding.fix,
        "gain": advice.gain_and_step(result, finding),
        "unsure": finding.confidence == "low",
        "where": " ".join(filter(None, where)) if where is not None else "",
        "diffs": [[change.framework, advice.diff(change)] for change in finding.changes],
        "evidence": [heads, rows],
        "notes": [
            text for text in (advice.note_on_other_changes(result, finding), finding.prediction_note, finding.risk) if text
        ],
        "sure": predicted_gain.confidence_in_words(finding),
    }
