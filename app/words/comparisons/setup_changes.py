"""The differences between two runs: what each one explains, the predictions, and what remains to do."""

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
TITLE = "What was changed"
VALUE = 40  # Longer values of settings are cut to this many characters.
# Shares of the gain: no share is stated below the first, and no "at least" above the second.
MIN_PART_SHARE, NEARLY_ALL = 0.1, 0.95
MIN_EXPLAINED_SHARE = 0.5  # Share of a prediction's error that one part of the step explains.
PARTS = 2  # Parts of the step that a line names.


def rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return each difference with its values and the part of the step's change that it explains.

    The largest share comes first.
    """
    lines = []
    for effect in comparison.effects:
        for place, difference in enumerate(effect.differences):
            lines.append(
                ComparisonRow(
                    *_topic_and_values(difference, comparison.b),
                    _explains(effect, comparison) if place == 0 else "part of the same change",
                )
            )
    return lines


MIN_MENTIONED_SHARE = Fraction(1, 100)  # Share of the step: a smaller time outside the profiled steps is a rounding error.
ADVISED, NOT_NEEDED = "advised", "not needed"  # Instead of values, where the change shows in a finding only.
NONE_PROFILED = "none in the profiled steps"
NOT_RECORDED = "not recorded"  # For a side without a profile, whose step cannot be divided.


def sentences(comparison: Comparison) -> list[str]:
    """Return ``rows`` as sentences.

    An example is "Batches are loaded: in the training process → in worker processes (98 % of the gain: …)".
    """
    return [
        f"{what}: {a} → {b} ({explained})" if explained else f"{what}: {a} → {b}" for what, a, b, explained in rows(comparison)
    ]


def nothing(comparison: Comparison) -> str | None:
    """Return why no difference is named, or None.

    It is None if there is a difference, or if the runs are the same run or of different models.
    """
    if comparison.effects or comparison.unrelated or _unseen(comparison) is not None:
        return None
    same = comparison.verdict.ci95_ms == (0.0, 0.0)  # the verdict says that both sides are the same recording
    if comparison.a.command and comparison.a.command == comparison.b.command and not same:
        return "Both ran the same command, so the difference is in the code, the data or the machine."
    lacking = [name for name, side in (("A", comparison.a), ("B", comparison.b)) if not side.first.manifest.traces]
    if lacking:
        return f"{' and '.join(lacking)} {'has' if len(lacking) == 1 else 'have'} no profile, so the change is not recorded. Record {' and '.join(lacking)} again with `sawtooth run`. For a loop shorter than five seconds, add `--after 1`."
    if same:
        return None
    if step_parts.steps_divided(comparison) and words.shown(comparison):
        return "The recordings do not show what was changed; the parts of the step below show where its time went."
    return "The recordings do not show what was changed."


def _topic_and_values(difference: SetupDifference, b: Side) -> tuple[str, str, str]:
    """Return the topic of a difference and its value on each side.

    Another finding of B may give the same advice as one of A.
    """
    if difference.finding is not None:
        advice = action(difference.finding)
        again = any(action(finding) == advice for finding in b.first.findings if finding.claims == "gain")
        if difference.of_b:
            return fmt.clean(advice, 90), NOT_NEEDED, ADVISED
        return fmt.clean(advice, 90), ADVISED, "still advised" if again else "no longer needed"
    return fmt.clean(difference.what, VALUE), fmt.clean(difference.a or "", VALUE), fmt.clean(difference.b or "", VALUE)


def _explains(effect: Effect, comparison: Comparison) -> str:
    """Return the share of the gain with its parts.

    If there is only one difference, it explains at least the parts that it affects.
    """
    # The effect of an argument shows in the other differences.
    recorded = [each for each in comparison.effects if not each.differences[0].argument]
    alone = recorded == [effect]
    if effect.share is None or not comparison.verdict.shown or (alone and effect.share < MIN_PART_SHARE):
        # An argument may have nothing to do with the change.
        only = len(comparison.effects) == 1 and not effect.differences[0].argument
        if not only or not comparison.verdict.shown:
            return ""
        return "; ".join(filter(None, ("the only setting recorded in both that differs", intervals.other_work(comparison))))
    way = "gain" if comparison.verdict.word == "faster" else "loss"
    bars = [WaterfallBar(row.owner, row.cause, float(row.ms_a), float(row.ms_b)) for row in effect.parts[:PARTS]]
    nothing_a, nothing_b = _nothing(comparison, "a"), _nothing(comparison, "b")
    parts = ", ".join(f"{bar.label} {_ms(bar, bar.ms_a, nothing_a)} → {_ms(bar, bar.ms_b, nothing_b)}" for bar in bars)
    if NOT_RECORDED in parts:  # a part that is unknown on one side has no share of the change
        return parts
    least = "at least " if alone and effect.share < NEARLY_ALL else ""
    return f"{least}{fmt.share(effect.share)} of the {way}: {parts}"


def _nothing(comparison: Comparison, side: Literal["a", "b"]) -> str:
    """Return what is known about a lost part that does not appear on a side.

    The run's time beyond its profiled steps may contain such a part.
    """
    if not getattr(comparison, side).first.manifest.traces:
        return NOT_RECORDED
    rows = comparison.waterfall_run
    whole, outside = (
        sum((getattr(row, f"ms_{side}") for row in rows if row.owner in owners), Fraction(0))
        for owners in ({row.owner for row in rows}, {OUTSIDE_PROFILE})
    )
    return NONE_PROFILED if outside > MIN_MENTIONED_SHARE * whole else "none"


def _ms(bar: WaterfallBar, ms: float, nothing: str) -> str:
    if ms:
        return fmt.duration_ms(ms)
    return "none" if nothing == NONE_PROFILED and bar.owner not in LOST_OWNERS else nothing


def tested_prediction(comparison: Comparison) -> str | None:
    """Return the prediction for the advice that B follows, next to the measured step time.

    An example is "Pad 50257 to a multiple of 64: predicted 14.8 ms (13.7 to 18.2 ms), measured 14.7 ms". The advice is left out if
    ``rows`` contains it. The result is None without a prediction. If B has no profile, it gives A's first advice.
    """
    prediction = comparison.prediction
    if prediction is None:
        return _unseen(comparison)
    actions = {finding.rule: action(finding) for finding in comparison.a.first.findings}
    fixes = [actions.get(rule, fmt.heading(rule)) for rule in prediction.rules]
    listed = {action(each.finding) for effect in comparison.effects for each in effect.differences if each.finding is not None}
    advice = "" if listed.issuperset(fixes) else "; ".join(fixes)
    predicted = _prediction_in_words(prediction.predicted_ms, prediction.low_ms, prediction.high_ms)
    off = prediction.measured_ms / prediction.predicted_ms - 1
    outside = not (prediction.low_ms or 0.0) <= prediction.measured_ms <= (prediction.high_ms or math.inf)
    missed = outside and prediction.tried is None
    by = f", {fmt.share(abs(off))} {'longer' if off > 0 else 'shorter'} than predicted" if missed else ""
    outcome = f"redicted {predicted}, {_came_to(comparison, prediction.measured_ms)}{by}."
    sentence = f"{advice}: p{outcome}" if advice else f"P{outcome}"
    if prediction.also_changed:
        also = "; ".join(prediction.also_changed)
        return f"{sentence} B also differs in other ways ({also}). The prediction does not include this, so the result does not test it."
    if prediction.tried is not None:
        return f"{sentence} B uses another number ({prediction.tried:g}), so the result does not test the prediction."
    return " ".join(filter(None, (sentence, _missed_part(comparison, prediction) if missed else None)))


def _missed_part(comparison: Comparison, prediction: Prediction) -> str | None:
    """Return the part of the step in which the prediction was wrong; None without parts.

    A prediction changes the parts that its advice acts on, and leaves the others as they are.
    """
    off = prediction.measured_ms - prediction.predicted_ms
    acted = {
        (row.owner, row.cause)
        for effect in comparison.effects
        if any(set(difference.rules) & set(prediction.rules) for difference in effect.differences)
        for row in effect.parts
    }
    others = [row for row in comparison.waterfall_run if (row.owner, row.cause) not in acted and row.change_ms * off > 0]
    most = max(others, key=lambda row: abs(row.change_ms), default=None)
    if most is not None and abs(most.change_ms) >= MIN_EXPLAINED_SHARE * abs(off):
        return f"The prediction does not change {_from_to(most)}."
    own = [row for row in comparison.waterfall_run if (row.owner, row.cause) in acted and row.ms_b]
    if not own:
        return None
    return f"The difference is in a part that the change affects: {_from_to(max(own, key=lambda row: row.ms_b))}."


def _from_to(row: RunRow) -> str:
    """Return a part of the step on both sides, such as "kernel launches (6.73 ms → 1.20 ms)"."""
    bar = WaterfallBar(row.owner, row.cause, float(row.ms_a), float(row.ms_b))
    before, after = (fmt.duration_ms(ms) if ms else "none" for ms in (bar.ms_a, bar.ms_b))
    return f"{bar.label} ({before} → {after})"


def _came_to(comparison: Comparison, ms: float) -> str:
    """Return B's step time and its source, such as "measured 157 ms by the stopwatch"."""
    approximately = about(comparison.b, comparison.sources[1])
    sources = " and ".join(STEP_SOURCES[source].name for source in comparison.sources[1])
    return f"{'estimated' if approximately else 'measured'} {approximately}{fmt.duration_ms(ms)} by {sources}"


def _prediction_in_words(ms: float, low_ms: float | None, high_ms: float | None) -> str:
    """Return a predicted step time with its interval, such as "≈ 6.50 ms (5.60 to 8.70 ms)"."""
    span = f" ({fmt.span_ms(low_ms, high_ms)})" if low_ms is not None and high_ms is not None else ""
    return f"≈\u00a0{fmt.duration_ms(ms)}{span}"


def _unseen(comparison: Comparison) -> str | None:
    """Return A's first advice with B's step time if B has no profile that shows whether it follows it."""
    measured = comparison.best.b
    first = next((f for f in comparison.a.first.findings if f.claims == "gain" and f.severity != "info"), None)
    if comparison.b.first.manifest.traces or measured is None or first is None or first.predicted_step_ms is None:
        return None
    common_traits = {trait.key for trait in comparison.a.traits} & {trait.key for trait in comparison.b.traits}
    # If both sides show the setting, it is either a difference above or the same.
    if any(choice.partition(" ")[0] in common_traits for choice in first.explains.sets):
        return None
    return (
        f"B has no profile that shows whether it follows A's first advice, {action(first)}: predicted "
        f"{_prediction_in_words(first.predicted_step_ms, first.predicted_low_ms, first.predicted_high_ms)}; "
        f"B takes {about(comparison.b, comparison.sources[1])}{fmt.duration_ms(measured)}."
    )


def left(comparison: Comparison) -> str | None:
    """Return what B can still gain, such as "Next in B: Use the fused optimizer: 47 → ≈ 41 ms".

    It is None if nothing is advised, or if the runs are not versions of one program.
    """
    change = first_change(comparison.b.first) if not comparison.unrelated else None
    if change is None:
        return None
    step = change[1].rstrip(".").replace(" (low confidence)", "")
    unsure = ", low confidence" if "(low confidence)" in change[1] else ""
    return f"Next in B: {step} (predicted{unsure})."
