"""The staircase in words and colours: bars and facts for every choice of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sawtooth.analysis import reading_order
from sawtooth.analysis.combined_changes import CombinedPrediction, mfu_of
from sawtooth.analysis.knowledge.owners import AVOIDABLE, COMPUTE_OWNERS, HOST_LOADING, LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.run.loading import host_parts
from sawtooth.analysis.run.model import Finding, RunResult
from sawtooth.analysis.run.verdict import StepPart
from sawtooth.analysis.staircase import Parts, Staircase, StairStep
from sawtooth.app import format as fmt
from sawtooth.app.theme import MUTED, Colour, colour_of, place_of
from sawtooth.app.words import advice, evidence, headline, predicted_gain, savings
from sawtooth.app.words import host as host_words
from sawtooth.app.words import run as run_words
from sawtooth.app.words.answer.change_code import cost
from sawtooth.app.words.answer.step import StepAnswer, answer_of
from sawtooth.app.words.answer.title import (
    Title,
    after,
    chosen,
    factor,
    first_choice,
    first_gain,
    limit_first,
    title,
)

LOST = (*LOST_OWNERS, OUTSIDE_PROFILE, HOST_LOADING)  # Owners of time in which the GPU (or the host, without a GPU) only waits.
AFTER, NOW = "after", "now"  # Owners of a predicted and of a measured step whose parts are not known.
# Compute counts as avoidable if its removal is at least this share of the first change's gain.
MIN_AVOIDED = 0.25
UNDIVIDED_DARK = "#64748B"  # On a dark page, MUTED would look like the gaps between kernels.
SEEN = 0.0005  # Share of the step: narrower parts are invisible.


@dataclass(frozen=True)
class CostFacts:
    """Facts for costs: remaining steps, price of a GPU-hour, and the GPU's power in W while it waits."""

    steps: float | None = None
    price: float | None = None
    waiting_w: float | None = None


@dataclass(frozen=True)
class Measured:
    """A run that made ``after`` of the changes: its name, the comparison's address, and its step."""

    name: str
    address: str
    step: StairStep
    after: int = 0


def of_run(result: RunResult, computed: Staircase | None) -> Staircase | None:
    """Return the staircase to draw: ``computed``, or the headline's change alone if no replay contains it.

    None if the run has no step time.
    """
    change, step_ms = reading_order.leading(result), reading_order.best_ms(result)
    if change is not None and (limited := _limited_staircase(result, computed, change)) is not None:
        return limited
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


def _limited_staircase(result: RunResult, computed: Staircase | None, change: Finding) -> Staircase | None:
    """Return the staircase of a change with an upper limit, but without a predicted gain.

    None if there is a plan, or no such limit.
    The limit removes the waits that the finding explains, then the longest other waits. Without such waits, the change removes
    the longest compute.
    """
    if computed is None or computed.planned or change.claims != "ceiling" or result.withdrawn_by is not None:
        return None
    now, saved = computed.now, change.gain_ms
    if change.ends_the_run or change.fed_every_ms is not None or headline.is_cut_off(result) or saved >= now.ms:
        return None
    owners = LOST if change.explains.causes else COMPUTE_OWNERS
    removed = [part for part in now.parts if part[0] in owners]
    parts_left = {part[:2]: part[2] for part in now.parts}
    for owner, cause, ms in sorted(removed, key=lambda part: (part[1] not in change.explains.causes, -part[2])):
        parts_left[owner, cause] = max(ms - saved, 0.0)
        saved = max(saved - ms, 0.0)
    if saved:
        return None  # The gain is more than these parts.
    parts = tuple((owner, cause, ms) for (owner, cause), ms in parts_left.items())
    shortest = sum(parts_left.values())
    return Staircase((change.rule,), 1, {0: now, 1: StairStep(shortest, shortest, now.ms, parts, limit=True)})


def with_avoidable(stairs: Staircase, result: RunResult) -> Staircase:
    """Return the staircase with the GPU work that the first change removes as a separate part.

    Otherwise a loss inside busy time, such as products in FP32, would have the colour of useful work.
    """
    first = first_gain(stairs, first_choice(stairs, result))
    if not first or any(owner == AFTER for owner, *_ in stairs.choices[first].parts):  # what remains is not known
        return stairs
    parts_after = _compute(stairs.choices[first])
    avoided = sum(max(ms - parts_after.get(owner, 0.0), 0.0) for owner, ms in _compute(stairs.now).items())
    if avoided < MIN_AVOIDED * (stairs.now.ms - stairs.choices[first].ms):
        return stairs
    return replace(stairs, choices={choice: _with_avoidable(step, parts_after) for choice, step in stairs.choices.items()})


def now_parts(result: RunResult, stairs: Staircase) -> tuple[StepPart, ...]:
    """Return the parts of the step now, as the chart draws them, largest first."""
    now = with_avoidable(stairs, result).now
    parts = (StepPart(owner, cause, ms, ms / now.ms) for owner, cause, ms in now.parts if ms and owner not in (AFTER, NOW))
    return tuple(sorted(parts, key=lambda part: -part.ms))


def _compute(step: StairStep) -> dict[str, float]:
    return {owner: ms for owner, _, ms in step.parts if owner in COMPUTE_OWNERS}


def _with_avoidable(step: StairStep, parts_after: Mapping[str, float]) -> StairStep:
    """Return a step whose compute above ``parts_after`` (ms by owner) is avoidable."""
    parts = [
        (owner, cause, min(ms, parts_after.get(owner, 0.0)) if owner in COMPUTE_OWNERS else ms)
        for owner, cause, ms in step.parts
    ]
    avoided = sum(ms for *_, ms in step.parts) - sum(ms for *_, ms in parts)
    return replace(step, parts=(*parts, (AVOIDABLE, None, avoided)))


def _host(result: RunResult, step_ms: float) -> Parts:
    parts = host_parts(result)
    return tuple((owner, None, ms) for owner, ms in parts.items()) or ((NOW, None, step_ms),)


def facts(result: RunResult, stairs: Staircase, choice: int, cost_facts: CostFacts) -> list[tuple[str, str]]:
    """Return the facts below the chart for ``choice``: label and value."""
    if not choice or stairs.choices[choice].limit:
        repeated = not choice and headline.healthy(result) is not None  # The headline of a healthy run has the MFU.
        used = run_words.mfu_fact(result.metrics) if savings.says_mfu(result.metrics) and result.lead and not repeated else None
        return [*host_words.facts(result, None), *([used] if used is not None else [])]
    changed, findings = stairs.choices[choice], chosen(stairs, choice, result)
    mfu = mfu_of(result.lead, findings) if result.lead is not None else None
    forecast = CombinedPrediction(stairs.now.ms, changed.ms, mfu, max(result.gpus, 1), changed.low_ms, changed.high_ms)
    if result.lead is not None:
        forecast = savings.with_known_mfu(forecast, result.lead.metrics)
    return host_words.facts(result, forecast) + savings.lines(
        forecast, None, steps=cost_facts.steps, price_per_gpu_hour=cost_facts.price, waiting_w=cost_facts.waiting_w
    )


def picture(
    result: RunResult, stairs: Staircase | None, cost_facts: CostFacts, measured: Sequence[Measured] = ()
) -> dict[str, Any]:
    """Return what the browser draws: the parts' colours, the changes, and the state of every choice.

    ``measured`` are the runs that made changes. Without ``stairs``, only the headline is drawn.
    """
    if stairs is None:
        shown_title = title(None, 0, result)
        stairs = Staircase((), 0, {0: StairStep(1.0, None, None, ())})
        drawn_picture = picture(result, stairs, cost_facts)
        state = {**drawn_picture["states"]["0"], **_of_title(shown_title), "text": "", "facts": []}
        return {**drawn_picture, "states": {"0": state}, "busy": [], "bars": False}
    stairs = with_avoidable(stairs, result)
    now = answer_of(result, result.lead)
    alike = _one_colour(now) if now is not None else {}
    kinds = _kinds([*stairs.choices.values(), *(run.step for run in measured)], alike)
    names = {colour_of("idle", cause): name for cause, name in now.names.items()} if now is not None else {}
    states, first, without_bar = {}, first_choice(stairs, result), limit_first(stairs, result)
    for choice, step in stairs.choices.items():
        shown_title, limit = title(stairs, choice, result), step.limit
        states[str(choice)] = {
            "ms": step.ms,
            "low": step.low_ms if step.low_ms is not None else step.ms,
            "high": step.high_ms if step.high_ms is not None and not limit else step.ms,
            "limit": limit,
            "text": after(stairs.now.ms, step) if choice else run_words.step_now(result) or fmt.duration_ms(step.ms),
            "span": fmt.span_ms(step.low_ms, step.high_ms, stairs.now.ms) if step.low_ms and step.high_ms and not limit else "",
            "parts": _parts(step, kinds, alike),
            "factor": factor(stairs.now.ms, step).partition(" (")[0].replace("up to ", "≤\u00a0" if limit else "up to ")
            if choice
            else "",
            **_of_title(shown_title),
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
        "busy": [fmt.duration_ms(now.works_ms), fmt.duration_ms(now.waits_ms), now.main_wait] if now is not None else [],
        "bars": True,
        "measured": [
            {
                "name": run.name,
                "address": run.address,
                "after": run.after,
                "ms": run.step.ms,
                "text": fmt.duration_ms(run.step.ms),
                "factor": factor(stairs.now.ms, run.step).partition(" (")[0],
                "parts": _parts(run.step, kinds, alike),
            }
            for run in measured
        ],
    }


def _of_title(shown_title: Title) -> dict[str, Any]:
    return {"title": shown_title.pieces, "whole": shown_title.whole, "under": shown_title.under}


def _one_colour(now: StepAnswer) -> dict[Colour, Colour]:
    """Return one colour for all waits that the first change calls by one name, by their own colours.

    It is the colour of the longest of these waits.
    """
    called: dict[str, Colour] = {}
    for part in sorted(now.parts, key=lambda part: -part.ms):
        if part.cause is not None and part.cause in now.names:
            called.setdefault(now.names[part.cause], colour_of("idle", part.cause))
    return {colour_of("idle", cause): called[name] for cause, name in now.names.items()}


def _kinds(steps: Sequence[StairStep], alike: Mapping[Colour, Colour]) -> list[tuple[Colour, str]]:
    """Return the colours of all parts of ``steps``, each with an owner, useful time first.

    A key of ``alike`` is drawn in the colour of its value.
    """
    keys = {(owner, cause) for step in steps for owner, cause, _ in step.parts}
    owners: dict[Colour, str] = {}
    for key in sorted(keys, key=lambda key: place_of(*key)):
        owners[alike.get(colour := colour_of_part(*key), colour)] = key[0]
    return list(owners.items())


def colour_of_part(owner: str, cause: str | None) -> Colour:
    """Return the colour of a part of a bar, also of a step whose parts are not known."""
    whole = {AFTER: "predicted", NOW: "measured, not divided"}.get(owner)
    return Colour(whole, MUTED.light, UNDIVIDED_DARK) if whole is not None else colour_of(owner, cause)


def _kind(colour: Colour, owner: str) -> dict[str, Any]:
    return {"label": colour.label, "light": colour.light, "dark": colour.dark, "texture": colour.texture, "lost": owner in LOST}


def _parts(
    step: StairStep, kinds: Sequence[tuple[Colour, str]], alike: Mapping[Colour, Colour]
) -> list[tuple[int, float, str]]:
    """Return the parts of a step: the place of their kind, ms, and a text with the time."""
    at = {colour: place for place, (colour, _) in enumerate(kinds)}
    summed: dict[int, float] = {}
    for owner, cause, ms in step.parts:
        kind = at[alike.get(colour := colour_of_part(owner, cause), colour)]
        summed[kind] = summed.get(kind, 0.0) + ms
    return [(kind, ms, fmt.part_ms(step.ms, ms)) for kind, ms in sorted(summed.items()) if ms > SEEN * step.ms]


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
