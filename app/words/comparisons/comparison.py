"""A comparison in sentences and rows, shared by the page, the reports and the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.comparison_side import Side, withdrawn_by
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.throughput import Throughput
from sawtooth.analysis.compare.waterfall import is_grown
from sawtooth.analysis.metrics.step_sources import ESTIMATED, StepSource
from sawtooth.analysis.run.model import Finding
from sawtooth.app import format as fmt
from sawtooth.app.charts.waterfall import WaterfallBar
from sawtooth.app.words.answer.headline_length import has_clauses
from sawtooth.app.words.comparisons import intervals, profiles_of_one_run
from sawtooth.app.words.comparisons.kernels import behind_compute
from sawtooth.app.words.comparisons.step_parts import bars, gpu_worked, one_ran_on_cpu, steps_divided
from sawtooth.app.words.headline import is_cut_off

MIN_MENTIONED_SHARE = 0.01  # Share of the change. Other parts are not mentioned if their sum is smaller.
ID_LENGTH = 6  # Characters of an id that distinguish two runs with equal names.
MAX_NAME_LENGTH = 28  # Characters. A longer name, such as a profiler's file name, makes a sentence hard to read.


def names(comparison: Comparison) -> tuple[str, str]:
    """Return the sides' names, cleaned; equal names get the beginnings of their ids."""
    if (steps := profiles_of_one_run.step_names(comparison)) is not None:
        return steps
    if (a := fmt.clean(comparison.a.name, 60)) != (b := fmt.clean(comparison.b.name, 60)):
        return a, b
    first, second = (side.first.manifest.id[:ID_LENGTH] for side in (comparison.a, comparison.b))
    return (f"{a} ({first})", f"{b} ({second})") if first != second else ("A", "B")


def _in_a_sentence(comparison: Comparison) -> tuple[str, str]:
    """Return the names in the headline: those of the runs if they can be read, else A and B."""
    sides = names(comparison)
    are_equal = profiles_of_one_run.step_names(comparison) is None and comparison.a.name == comparison.b.name
    are_hard_to_read = any(len(name) > MAX_NAME_LENGTH or has_clauses(name) for name in sides)
    return ("A", "B") if are_equal or are_hard_to_read else sides


def called(comparison: Comparison) -> str | None:
    """Return which runs A and B are, if the headline does not name them, else None."""
    if _in_a_sentence(comparison) == names(comparison) or is_one_run(comparison):
        return None
    return "; ".join(f"{side}: {name}" for side, name in zip("AB", names(comparison), strict=True))


def about(side: Side, sources: Sequence[StepSource]) -> str:
    """Return ≈ before a step time that is not measured, else "".

    Without GPU work, a profiled step counts as not measured, because the profiler slows the host.
    """
    is_slowed = "profile" in sources and not side.gpu_worked
    return "≈\u00a0" if is_slowed or any(source in ESTIMATED for source in sources) else ""


def both_about(comparison: Comparison) -> tuple[str, str]:
    """Return ``about`` of A and of B."""
    return about(comparison.a, comparison.sources[0]), about(comparison.b, comparison.sources[1])


def step_times(comparison: Comparison) -> str:
    """Return the step times of A and B, such as "≈ 30 ms → ≈ 26.3 ms"."""
    times_ms = (comparison.best.a, comparison.best.b)
    longest_ms, sides = max(ms or 0.0 for ms in times_ms), zip(both_about(comparison), times_ms, strict=True)
    return " → ".join(f"{sign}{fmt.part_ms(longest_ms, ms)}" if ms is not None else "not known" for sign, ms in sides)


def _both_step_times(comparison: Comparison) -> str:
    """Return the step times of runs of different programs, such as "30 ms and 26.3 ms per step"."""
    times_ms = (comparison.best.a, comparison.best.b)
    if None not in times_ms:
        return f"{step_times(comparison).replace(' → ', ' and ')} per step"
    return ", ".join(
        f"{sign}{fmt.duration_ms(ms)} per step in {name}" if ms is not None else f"no step time is known of {name}"
        for name, sign, ms in zip("AB", both_about(comparison), times_ms, strict=True)
    )


def headline(comparison: Comparison) -> str:
    """Return the verdict in one sentence, on work per second if the steps do different work."""
    a, b = _in_a_sentence(comparison)
    if comparison.other_model:
        difference = "are different programs" if comparison.other_program else "train different models"
        return f"{a} and {b} {difference}: {_both_step_times(comparison)}."
    if one_ran_on_cpu(comparison):
        gpu_rank = comparison.a.first.lead or comparison.b.first.lead
        gpu = (gpu_rank.device_name if gpu_rank is not None else "") or "a GPU"
        devices = [gpu if worked else "the CPU" for worked in gpu_worked(comparison)]
        return f"{a} ran on {devices[0]} and {b} ran on {devices[1]}: {_both_step_times(comparison)}."
    if comparison.throughput is not None:
        return _throughput(comparison.throughput, a, b, step_times(comparison))
    if is_one_run(comparison):
        return f"A and B are the same run: {fmt.clean(comparison.a.name, 60)}."
    word, best = comparison.verdict.word, comparison.best
    if best.a is None or best.b is None:
        if (withdrawn := withdrawn_by(comparison.a, comparison.b)) is not None:
            return f"No verdict. {fmt.clean(withdrawn)}"
        unknown = " and ".join(name for name, ms in ((a, best.a), (b, best.b)) if ms is None)
        return f"No verdict: no step time is known of {unknown}."
    answer, times = comparison.verdict.answer, f"{step_times(comparison)} per step."
    if answer in ("faster", "slower"):
        verb = "is" if answer == "faster" else "takes"
        interval = f"(95\u00a0%: {intervals.of_ratio(comparison)})"
        return f"{b} {verb} about {intervals.stated_ratio(comparison)} as {a} {interval}: {times}"
    if comparison.verdict.shown:
        return f"{b} is {word} than {a}, size uncertain: {times}"
    if answer == "no_change":
        return f"{intervals.no_change(comparison.verdict)} between {a} and {b}: {times}"
    return f"Cannot tell whether {a} or {b} is faster: {times}"


def is_one_run(comparison: Comparison) -> bool:
    """Return whether both sides are the same runs."""
    a, b = ([run.manifest.id for run in side.runs] for side in (comparison.a, comparison.b))
    return a == b


def tab_title(comparison: Comparison, title: str | None = None) -> str:
    """Return the title of the browser's tab: ``title`` or else the verdict, and the runs."""
    runs = called(comparison) if title is None else " → ".join(names(comparison))
    return fmt.clean(" · ".join(filter(None, (title or headline(comparison).rstrip("."), runs))))


def _throughput(rate: Throughput, a: str, b: str, steps: str) -> str:
    """Return the verdict on work per second, with the step times."""
    work = intervals.work_name(rate)
    rates = " → ".join(work_rate(value, rate.unit) for value in (rate.a, rate.b))
    if rate.batch is not None:
        rates = f"{_batches(rate.batch)}, {rates}"
    if rate.verdict.shown and not rate.verdict.size_known:
        word = "more" if rate.verdict.word == "faster" else "fewer"
        return f"{b} does {word} {work} per second than {a}, size uncertain: {rates}; a step takes {steps}."
    if rate.verdict.shown:
        return f"{b} {intervals.of_rates(rate, a)}: {rates}; a step takes {steps}."
    if rate.verdict.answer == "no_change":
        return f"{intervals.no_change(rate.verdict)} between {a} and {b} in {work} per second: {rates}; a step takes {steps}."
    return f"Cannot tell whether {a} or {b} does more {work} per second: {rates}; a step takes {steps}."


def _batches(ratio: Fraction) -> str:
    """Return the ratio of the batches, such as "batches of 1 → 64 in proportion"."""
    return f"batches of {ratio.denominator:,} → {ratio.numerator:,} in proportion"


def work_rate(per_second: float, unit: str) -> str:
    """Return work per second, such as "1,240 samples/s" or "312 TFLOP/s"."""
    return fmt.flop_rate(per_second / 1e12) if unit == "FLOP" else f"{fmt.count(per_second)} {unit}/s"


def below(comparison: Comparison, *, interval: bool = True, reason: bool = True) -> str:
    """Return the line below the headline: the change's main part (``reason``) and the confidence.

    ``interval`` is False for a page that shows the interval elsewhere.
    """
    if comparison.other_model:
        return why_sure(comparison)
    if one_ran_on_cpu(comparison):
        return f"{lacks_gpu_work(comparison)} Their step times do not show the effect of a change to the training."
    if is_one_run(comparison):
        return "Choose another run as A or B."
    if comparison.best.a is None or comparison.best.b is None:
        remedy = intervals.remedy(comparison) if withdrawn_by(comparison.a, comparison.b) is None else None
        return " ".join(filter(None, (lacks_gpu_work(comparison), cut_off(comparison) or remedy)))
    confidence, main = how_sure(comparison), main_part(comparison) if reason else None
    if confidence == "Low confidence.":
        confidence = f"{confidence} {why_sure(comparison)}"
    elif not interval and confidence.startswith(("High", "Medium", "Low")):
        confidence = f"{confidence.partition(':')[0].rstrip('.')}."
    if (remedy := intervals.remedy(comparison)) is not None:
        confidence = f"{remedy} {confidence}"
    lack, kernels = lacks_gpu_work(comparison), behind_compute(comparison) if shown(comparison) else None
    if any(gpu_worked(comparison)):  # A lack on one side limits the other statements, so it comes first.
        return " ".join(filter(None, (lack, main, kernels, confidence)))
    return " ".join(filter(None, (main, kernels, confidence, lack)))


def lacks_gpu_work(comparison: Comparison) -> str | None:
    """Return which sides' profiles have no GPU work; None if all profiles have some."""
    sides = (("A", comparison.a), ("B", comparison.b))
    lacking = [name for name, side in sides if not side.gpu_worked and side.first.manifest.traces]
    if len(lacking) == 2:
        return "The profiles of A and B contain no GPU work."
    return f"The profile of {lacking[0]} contains no GPU work." if lacking else None


def cut_off(comparison: Comparison) -> str | None:
    """Return which sides' traces are cut off; None if all traces are complete."""
    names = [name for name, side in (("A", comparison.a), ("B", comparison.b)) if any(map(is_cut_off, side.runs))]
    return f"The trace of {' and '.join(names)} is cut off. Record it again." if names else None


def shown(comparison: Comparison) -> bool:
    """Return whether a change of the step or of the work per second is shown."""
    return comparison.leading.shown


def certainty(comparison: Comparison) -> str:
    """Return the limits of the verdict: missing GPU work, confidence, interval and reason."""
    return " ".join(filter(None, (lacks_gpu_work(comparison), how_sure(comparison), why_sure(comparison))))


def stated_confidence(comparison: Comparison) -> str:
    """Return the confidence of the stated verdict, such as "High confidence"."""
    return f"{comparison.leading.confidence.capitalize()} confidence"


def only_confidence(sentence: str) -> bool:
    """Return whether a line states only that the confidence is high, which needs no line of its own."""
    return sentence == "High confidence."


def how_sure(comparison: Comparison) -> str:
    """Return the confidence and interval, such as "Low confidence: a step is 493 to 843 ms shorter".

    It is "" for two models.
    """
    if comparison.other_model:
        return ""
    confidence = _confidence_in_words(comparison.leading)
    if comparison.throughput is not None:  # The interval in ms is for A's work. The page does not show that time.
        return f"{confidence}{intervals.of_rate(comparison.throughput)}."
    interval_ms = comparison.verdict.ci95_ms
    if interval_ms is None or interval_ms == (0.0, 0.0):
        return f"{confidence}."
    return f"{confidence}: {intervals.of_change(*interval_ms)}"


def _confidence_in_words(verdict: Verdict) -> str:
    if not verdict.may_be_none or verdict.confidence != "low":
        return f"{verdict.confidence.capitalize()} confidence"
    visible_share = verdict.smallest_visible_share
    if visible_share is None or visible_share >= 1:  # Even a change as large as the whole step would not show.
        return "Little is known"
    return f"Only a change above {fmt.share(visible_share)} would show"


def why_sure(comparison: Comparison) -> str:
    """Return the reason for the verdict's confidence."""
    return fmt.spaced(comparison.leading.why)


def largest_change(comparison: Comparison) -> WaterfallBar | None:
    """Return the part of the step that changed most in the step's direction; None if it is not known."""
    steps = steps_divided(comparison)
    if not steps or not comparison.verdict.shown:
        return None
    parts = bars(comparison, steps[0])
    change = sum(part.change_ms for part in parts)
    moved = (part for part in parts if part.change_ms * change > 0 and part.resolved)
    return max(moved, key=lambda part: abs(part.change_ms), default=None)


def main_part(comparison: Comparison) -> str | None:
    """Return the main part of the change, such as "Of the 617 ms saved, 613 ms came from …".

    It is None if no part can be named, or if the change is not significant.
    """
    largest = largest_change(comparison)
    if largest is None:
        return None
    parts = bars(comparison, steps_divided(comparison)[0])
    change = sum(part.change_ms for part in parts)
    amount, total = fmt.duration_ms(abs(largest.change_ms)), fmt.duration_ms(abs(change))
    participle, verb = ("saved", "came from") if change < 0 else ("added", "went to")
    if amount == total:
        return f"All {total} {participle} {verb} {largest.label_in_sentence}."
    if abs(largest.change_ms) <= abs(change):
        return f"Of the {total} {participle}, {amount} {verb} {largest.label_in_sentence}."
    changed, changed_back = ("fell", "grew") if change < 0 else ("grew", "fell")
    label = largest.label_in_sentence[0].upper() + largest.label_in_sentence[1:]
    opposite_ms = math.fsum(abs(part.change_ms) for part in parts if part.change_ms * change < 0)
    # Change of the other parts that change in the direction of the largest part.
    others_ms = opposite_ms - abs(largest.change_ms) + abs(change)
    opposite = fmt.duration_ms(opposite_ms)
    if others_ms < MIN_MENTIONED_SHARE * abs(change):
        return f"{label} {changed} by {amount}, and the other parts {changed_back} by {opposite}."
    other_parts = f"other parts {changed} by {fmt.duration_ms(others_ms)}"
    return f"{label} {changed} by {amount}, {other_parts}, and the rest {changed_back} by {opposite}."


def findings(comparison: Comparison) -> list[tuple[str, list[Finding]]]:
    """Return the findings that only one side has, by heading, without remarks; empty for two models."""
    if comparison.unrelated:
        return []
    grown = [finding for finding in comparison.findings_new if is_grown(finding, comparison.waterfall_run)]
    groups = {
        "Fixed" if shown(comparison) and comparison.verdict.word == "faster" else "In A alone": comparison.findings_fixed,
        "New in B": grown,
        # These losses exist in A too, where another change came first.
        "Large enough to matter in B": [finding for finding in comparison.findings_new if finding not in grown],
    }
    costly = {heading: [finding for finding in group if finding.claims != "caution"] for heading, group in groups.items()}
    return [(heading, group) for heading, group in costly.items() if group]
