"""The differences between two runs: the effect of each, the tested prediction, and what remains to do."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from sawtooth.analysis.compare.changed.differences import Effect, SetupDifference
from sawtooth.analysis.compare.changed.prediction import Prediction
from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison_side import Side
from sawtooth.analysis.compare.waterfall import RunRow
from sawtooth.analysis.knowledge.owners import LOST_OWNERS, OUTSIDE_PROFILE
from sawtooth.analysis.metrics.step_sources import STEP_SOURCES
from sawtooth.app import format as fmt
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons import intervals, step_parts
from sawtooth.app.words.comparisons.comparison import about
from sawtooth.app.words.comparisons.row import ComparisonRow
from sawtooth.app.words.headline import action, first_change

COLUMNS = ("What was changed", "A", "B", "Explains")
TITLE, ALSO_CHANGED = "What was changed", "Also changed"
VALUE_LENGTH = 40  # Longer values of settings are cut to this many characters.
MIN_PART_SHARE = 0.1  # Share of the gain, or of the largest part. A smaller share is not stated.
MAX_AT_LEAST_SHARE = 0.95  # Share of the gain. A larger share is stated without "at least".
MIN_EXPLAINED_SHARE = 0.5  # Share of a prediction's error. A part of the step with less does not explain the error.
MAX_PARTS = 2  # Parts of the step that a line names.
MIN_MENTIONED_SHARE = Fraction(1, 100)  # Share of the step. Less time outside the profiled steps is a rounding error.
ADVISED, NOT_NEEDED = "advised", "not needed"  # Shown instead of values if only a finding shows the difference.
NONE_PROFILED = "none in the profiled steps"
NOT_RECORDED = "not recorded"  # Shown for a side without a profile, whose step has no known parts.


def rows(comparison: Comparison, without: SetupDifference | None = None) -> list[ComparisonRow]:
    """Return each difference with its values and its effect on the step; the largest effect comes first.

    ``without`` is a difference that the page shows elsewhere.
    """
    lines = []
    for effect in comparison.effects:
        for index, difference in enumerate(effect.differences):
            if difference is without:
                continue
            effect_text = _effect_in_words(effect, comparison) if index == 0 else "part of the same change"
            lines.append(ComparisonRow(*_topic_and_values(difference, comparison.b), effect_text))
    return lines


def sentences(comparison: Comparison, without: SetupDifference | None = None) -> list[str]:
    """Return ``rows`` as sentences.

    An example is "Batches are loaded: in the training process → in worker processes (98 % of the gain: …)".
    """
    return [f"{topic}: {a} → {b}{f' ({effect})' if effect else ''}" for topic, a, b, effect in rows(comparison, without)]


def why_none(comparison: Comparison) -> str | None:
    """Return why no difference is listed.

    It is None if one is listed, and for one run or runs of different programs.
    """
    if comparison.effects or comparison.unrelated or _untested_advice(comparison) is not None:
        return None
    is_one_recording = comparison.verdict.ci95_ms == (0.0, 0.0)
    if comparison.a.command and comparison.a.command == comparison.b.command and not is_one_recording:
        return "Both ran the same command, so the difference is in the code, the data or the machine."
    lacking = [name for name, side in (("A", comparison.a), ("B", comparison.b)) if not side.first.manifest.traces]
    if lacking:
        sides, verb = " and ".join(lacking), "has" if len(lacking) == 1 else "have"
        return f"{sides} {verb} no profile, so the change is not recorded. Record {sides} again with `sawtooth run`. For a loop shorter than five seconds, add `--after 1`."
    if is_one_recording:
        return None
    if step_parts.steps_divided(comparison) and words.shown(comparison):
        return "The recordings do not show what was changed. The parts of the step below show which times changed."
    return "The recordings do not show what was changed."


def _topic_and_values(difference: SetupDifference, b: Side) -> tuple[str, str, str]:
    if difference.finding is not None:
        advice = action(difference.finding)
        if difference.of_b:
            return fmt.clean(advice, 90), NOT_NEEDED, ADVISED
        # Another finding of B may give this advice.
        is_still_advised = any(action(finding) == advice for finding in b.first.findings if finding.claims == "gain")
        return fmt.clean(advice, 90), ADVISED, "still advised" if is_still_advised else "no longer needed"
    a_value, b_value = (fmt.clean(value or "", VALUE_LENGTH) for value in (difference.a, difference.b))
    return fmt.clean(difference.what, VALUE_LENGTH), a_value, b_value


def _effect_in_words(effect: Effect, comparison: Comparison) -> str:
    """Return the share of the gain or loss that a difference explains, with the parts of the step.

    It is "" if unknown.
    """
    if not comparison.verdict.shown:
        return ""
    is_argument = effect.differences[0].argument
    # Arguments do not count, because the effect of an argument shows in the other differences.
    is_alone = [other_effect for other_effect in comparison.effects if not other_effect.differences[0].argument] == [effect]
    if effect.share is None or (is_alone and effect.share < MIN_PART_SHARE):
        if len(comparison.effects) > 1 or is_argument:  # An argument may have nothing to do with the change.
            return ""
        return "; ".join(
            filter(None, ("the only difference between settings that both sides recorded", intervals.other_work(comparison)))
        )
    bars = [WaterfallBar(row.owner, row.cause, float(row.ms_a), float(row.ms_b)) for row in effect.parts[:MAX_PARTS]]
    bars = [bar for bar in bars if abs(bar.change_ms) >= MIN_PART_SHARE * abs(bars[0].change_ms)]
    missing_a, missing_b = _missing_part(comparison, "a"), _missing_part(comparison, "b")
    whole_ms = max(comparison.best.a or 0.0, comparison.best.b or 0.0)
    parts = ", ".join(
        f"{bar.label} {_ms(bar, bar.ms_a, missing_a, whole_ms)} → {_ms(bar, bar.ms_b, missing_b, whole_ms)}" for bar in bars
    )
    if NOT_RECORDED in parts:  # The share of a part that is unknown on one side is unknown.
        return parts
    at_least = "at least " if is_alone and effect.share < MAX_AT_LEAST_SHARE else ""
    direction = "gain" if comparison.verdict.word == "faster" else "loss"
    return f"{at_least}{fmt.share(effect.share)} of the {direction}: {parts}"


def _missing_part(comparison: Comparison, side: Literal["a", "b"]) -> str:
    """Return the text for a lost part that ``side`` does not have.

    The run may have this part outside its profiled steps.
    """
    if not getattr(comparison, side).first.manifest.traces:
        return NOT_RECORDED
    times = [(row.owner, getattr(row, f"ms_{side}")) for row in comparison.waterfall_run]
    total_ms = sum((ms for _, ms in times), Fraction(0))
    outside_ms = sum((ms for owner, ms in times if owner == OUTSIDE_PROFILE), Fraction(0))
    return NONE_PROFILED if outside_ms > MIN_MENTIONED_SHARE * total_ms else "none"


def _ms(bar: WaterfallBar, ms: float, missing: str, whole_ms: float) -> str:
    if ms:
        return fmt.part_ms(whole_ms, ms)
    return "none" if missing == NONE_PROFILED and bar.owner not in LOST_OWNERS else missing


def tested_prediction(comparison: Comparison) -> str | None:
    """Return the prediction for the advice that B follows, and the measured step time.

    An example is "Pad 50257 to a multiple of 64: predicted 14.8 ms (13.7 to 18.2 ms), measured 14.7 ms". The advice is left out if
    ``rows`` contains it. If B has no profile, the text has A's first advice. The result is None without a prediction.
    """
    prediction = comparison.prediction
    if prediction is None:
        return _untested_advice(comparison)
    actions = {finding.rule: action(finding) for finding in comparison.a.first.findings}
    advised = [actions.get(rule, fmt.heading(rule)) for rule in prediction.rules]
    listed = {
        action(difference.finding)
        for effect in comparison.effects
        for difference in effect.differences
        if difference.finding is not None
    }
    predicted = _prediction_in_words(prediction.predicted_ms, prediction.low_ms, prediction.high_ms)
    is_inside = (prediction.low_ms or 0.0) <= prediction.measured_ms <= (prediction.high_ms or math.inf)
    is_wrong = not is_inside and prediction.tried is None
    error = prediction.measured_ms / prediction.predicted_ms - 1
    error_text = f", {fmt.share(abs(error))} {'longer' if error > 0 else 'shorter'} than predicted" if is_wrong else ""
    sentence = f"predicted {predicted}, {_measured_in_words(comparison, prediction.measured_ms)}{error_text}."
    sentence = f"P{sentence[1:]}" if listed.issuperset(advised) else f"{'; '.join(advised)}: {sentence}"
    if prediction.also_changed:
        also = "; ".join(prediction.also_changed)
        return f"{sentence} B also differs in other ways ({also}), so the result does not test the prediction."
    if prediction.tried is not None:
        return f"{sentence} B uses another number ({prediction.tried:g}), so the result does not test the prediction."
    return " ".join(filter(None, (sentence, _wrong_part(comparison, prediction) if is_wrong else None)))


def _wrong_part(comparison: Comparison, prediction: Prediction) -> str | None:
    """Return the part of the step in which the prediction was wrong; None without parts.

    A prediction changes only the parts that the advice affects.
    """
    error_ms = prediction.measured_ms - prediction.predicted_ms
    affected = {
        (row.owner, row.cause)
        for effect in comparison.effects
        if any(set(difference.rules) & set(prediction.rules) for difference in effect.differences)
        for row in effect.parts
    }
    parts = comparison.waterfall_run
    unpredicted = [row for row in parts if (row.owner, row.cause) not in affected and row.change_ms * error_ms > 0]
    largest = max(unpredicted, key=lambda row: abs(row.change_ms), default=None)
    if largest is not None and abs(largest.change_ms) >= MIN_EXPLAINED_SHARE * abs(error_ms):
        return f"The prediction does not change {_from_to(largest)}."
    remaining = [row for row in parts if (row.owner, row.cause) in affected and row.ms_b]
    if not remaining:
        return None
    return f"The difference is in a part that the change affects: {_from_to(max(remaining, key=lambda row: row.ms_b))}."


def _from_to(row: RunRow) -> str:
    """Return a part of the step on both sides, such as "kernel launches (6.73 ms → 1.20 ms)"."""
    bar = WaterfallBar(row.owner, row.cause, float(row.ms_a), float(row.ms_b))
    before, after = (fmt.duration_ms(ms) if ms else "none" for ms in (bar.ms_a, bar.ms_b))
    return f"{bar.label} ({before} → {after})"


def _measured_in_words(comparison: Comparison, ms: float) -> str:
    """Return B's step time and its source, such as "measured 157 ms by the stopwatch"."""
    sign = about(comparison.b, comparison.sources[1])
    sources = " and ".join(STEP_SOURCES[source].name for source in comparison.sources[1])
    return f"{'estimated' if sign else 'measured'} {sign}{fmt.duration_ms(ms)} by {sources}"


def _prediction_in_words(ms: float, low_ms: float | None, high_ms: float | None) -> str:
    """Return a predicted step time with its interval, such as "≈ 6.50 ms (5.60 to 8.70 ms)"."""
    interval = f" ({fmt.span_ms(low_ms, high_ms)})" if low_ms is not None and high_ms is not None else ""
    return f"≈\u00a0{fmt.duration_ms(ms)}{interval}"


def _untested_advice(comparison: Comparison) -> str | None:
    """Return A's first advice and B's step time if no profile of B shows whether B follows it."""
    measured_ms = comparison.best.b
    first = next((f for f in comparison.a.first.findings if f.claims == "gain" and f.severity != "info"), None)
    if comparison.b.first.manifest.traces or measured_ms is None or first is None or first.predicted_step_ms is None:
        return None
    common_traits = {trait.key for trait in comparison.a.traits} & {trait.key for trait in comparison.b.traits}
    # A setting that both sides show is either in ``rows`` or the same on both sides.
    if any(choice.partition(" ")[0] in common_traits for choice in first.explains.sets):
        return None
    predicted = _prediction_in_words(first.predicted_step_ms, first.predicted_low_ms, first.predicted_high_ms)
    measured = f"{about(comparison.b, comparison.sources[1])}{fmt.duration_ms(measured_ms)}"
    return (
        f"B has no profile that shows whether it follows A's first advice ({action(first)}). "
        f"The predicted step takes {predicted}; B takes {measured}."
    )


def explanation(difference: SetupDifference, comparison: Comparison) -> str:
    """Return what ``difference`` explains, as a sentence; "" if it explains nothing."""
    effects = [_effect_in_words(effect, comparison) for effect in comparison.effects if difference in effect.differences]
    effect = "".join(effects[:1]).replace(" → ", "\u00a0→\u00a0")
    if not effect:
        return ""
    is_share = " of the gain" in effect or " of the loss" in effect
    values = "\u00a0→\u00a0".join(fmt.clean(value or "", VALUE_LENGTH) for value in (difference.a, difference.b))
    return (
        f"{'This' if len(comparison.effects) == 1 else values} explains {effect}."
        if is_share
        else f"{effect[0].upper()}{effect[1:]}."
    )


def next_change(comparison: Comparison) -> str | None:
    """Return the first change of B, such as "Use the fused optimizer: 47 → ≈ 41 ms (predicted)."

    It is None if nothing is advised, and for runs of different programs or models.
    """
    change = first_change(comparison.b.first) if not comparison.unrelated else None
    if change is None:
        return None
    sentence = change[1].rstrip(".").replace(" (low confidence)", "")
    confidence = ", low confidence" if "(low confidence)" in change[1] else ""
    return f"{sentence} (predicted{confidence})."


def next_in_b(comparison: Comparison) -> str | None:
    """Return ``next_change`` with its side, for a report."""
    sentence = next_change(comparison)
    return None if sentence is None else f"Next in B: {', '.join(sentence.rsplit(': ', 1))}"
