"""A comparison in sentences and rows: the same words on the page, in the HTML report, in Markdown and in the terminal."""

from __future__ import annotations

import re
from typing import Literal

import pandas as pd

from sawtooth.analysis.compare.comparison import Comparison, MetricChange
from sawtooth.analysis.compare.matching import Match
from sawtooth.analysis.compare.throughput import Throughput
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.app import format as fmt
from sawtooth.app.charts.rankings import short
from sawtooth.app.charts.waterfall import Bar
from sawtooth.app.words import stretches
from sawtooth.app.words.headline import action

Step = Literal["run", "profiled"]  # which step a waterfall divides
NAME = 70  # characters of a kernel's or operator's name; the whole one stands beside it
WAYS = {
    "name": "same name",
    "operator_and_shape": "same operator and shapes",
    "operator": "same operator, other shapes",
    "category": "same category",
    "only_a": "only in A",
    "only_b": "only in B",
}
ID_SHOWN = 6  # characters of an id that tell two runs of one name apart
COLUMNS = {
    "what": "What",
    "ms_a": "A, ms per step",
    "ms_b": "B, ms per step",
    "change_ms": "Change, ms per step",
    "count_a": "A, per step",
    "count_b": "B, per step",
    "matched_by": "Matched by",
    "names_a": "Names in A",
    "names_b": "Names in B",
}


def names(comparison: Comparison) -> tuple[str, str]:
    """Return the sides' names, cleaned; with the beginnings of their ids where both are called alike."""
    if (steps := stretches.step_names(comparison)) is not None:
        return steps
    a, b = fmt.clean(comparison.a.name, 60), fmt.clean(comparison.b.name, 60)
    if a != b:
        return a, b
    first, second = (side.first.manifest.id[:ID_SHOWN] for side in (comparison.a, comparison.b))
    return (f"{a} ({first})", f"{b} ({second})") if first != second else ("A", "B")


def spaced(sentence: str) -> str:
    """Return a sentence of analysis with the space before % that people's numbers have here."""
    return re.sub(r"(\d)%", "\\1\u00a0%", sentence)


def _about(source: str) -> str:
    return "≈ " if "estimate" in source or "telemetry" in source else ""


def step_times(comparison: Comparison) -> str:
    """Return both best step times: ≈ 30 ms → ≈ 26.3 ms."""
    sides = zip((comparison.best.a, comparison.best.b), comparison.sources, strict=True)
    return " → ".join(f"{_about(source)}{fmt.duration_ms(ms)}" if ms is not None else "not known" for ms, source in sides)


def headline(comparison: Comparison) -> str:
    """Return the verdict in one sentence: of work per second where a step does other work on either side, else of the step."""
    a, b = names(comparison)
    if comparison.throughput is not None:
        return _throughput(comparison.throughput, a, b, step_times(comparison))
    word, best = comparison.verdict.word, comparison.best
    if word in ("faster", "slower") and best.a and best.b:
        if word == "faster":
            return f"{b} is {fmt.times(best.a / best.b)} as fast as {a}: {step_times(comparison)} a step."
        return f"{b} takes {fmt.times(best.b / best.a)} as long as {a}: {step_times(comparison)} a step."
    if word == "no_difference_shown":
        return f"No difference shown between {a} and {b}: {step_times(comparison)} a step."
    return f"No verdict on whether {b} differs from {a}: {step_times(comparison)} a step."


def _throughput(rate: Throughput, a: str, b: str, steps: str) -> str:
    """Return the verdict on work per second: as 1.39 × the samples of A, with the step times behind it."""
    work = "floating-point operations" if rate.unit == "FLOP" else rate.unit
    rates = " → ".join(work_rate(value, rate.unit) for value in (rate.a, rate.b))
    if rate.verdict.word in ("faster", "slower"):
        return f"{b} does {fmt.times(rate.ratio)} the {work} a second of {a}: {rates}; a step takes {steps}."
    if rate.verdict.word == "no_difference_shown":
        return f"No difference shown between {a} and {b} in {work} a second: {rates}; a step takes {steps}."
    return f"No verdict on whether {b} and {a} differ in {work} a second: {rates}; a step takes {steps}."


def work_rate(per_second: float, unit: str) -> str:
    """Return work per second: 1,240 samples/s, 312 TFLOP/s."""
    return fmt.flop_rate(per_second / 1e12) if unit == "FLOP" else f"{fmt.count(per_second)} {unit}/s"


def certainty(comparison: Comparison) -> str:
    """Return what limits the verdict: its confidence, interval and reason."""
    return f"{how_sure(comparison)} {why_sure(comparison)}"


def how_sure(comparison: Comparison) -> str:
    """Return the verdict's confidence and interval: Low confidence. 95 % interval of the change −843 ms to −493 ms."""
    word, rate = comparison.verdict, comparison.throughput
    sure = f"{(rate.verdict if rate is not None else word).confidence.capitalize()} confidence."
    if rate is not None or word.ci95_ms is None or word.ci95_ms == (0.0, 0.0):
        return sure  # a rate's interval is of the time that A's work takes, which nobody sees
    return f"{sure} {_interval(*word.ci95_ms)}"


def why_sure(comparison: Comparison) -> str:
    """Return what the verdict's confidence rests on."""
    return spaced((comparison.throughput.verdict if comparison.throughput is not None else comparison.verdict).why)


def _interval(low_ms: float | None, high_ms: float | None) -> str:
    """Return the interval of the change, open where nothing bounds it."""
    low, high = (None if ms is None else fmt.signed(fmt.duration_ms(ms), ms) for ms in (low_ms, high_ms))
    if low is None and high is None:
        return "Nothing bounds the change."
    if low is None or high is None:
        return f"95 % interval of the change: {'at most ' + high if high else f'at least {low}'}."
    return f"95 % interval of the change {low} to {high}."


def bars(comparison: Comparison, step: Step) -> list[Bar]:
    """Return the parts of a waterfall for charts: of the run's own step, or of the profiled step."""
    if step == "run":
        return [Bar(r.owner, r.cause, float(r.ms_a), float(r.ms_b)) for r in comparison.waterfall_run]
    return [Bar(r.owner, r.cause, float(r.ns_a) / 1e6, float(r.ns_b) / 1e6) for r in comparison.waterfall]


def steps_divided(comparison: Comparison) -> tuple[Step, ...]:
    """Return the steps that can be divided on both sides, the run's own first."""
    has: dict[Step, bool] = {"run": bool(comparison.waterfall_run), "profiled": bool(comparison.waterfall)}
    return tuple(step for step, rows in has.items() if rows)


def waterfall_title(parts: list[Bar], step: Step) -> str:
    """Return the waterfall's finding: the change, and the largest part that goes the same way."""
    where = "The step changed" if step == "run" else "Under the profiler the step changed"
    change = sum(part.change_ms for part in parts)
    total = fmt.signed(fmt.duration_ms(change), change)
    same_way = [part for part in parts if part.change_ms * change > 0]
    if not same_way:
        return f"{where} by nothing"
    largest = max(same_way, key=lambda part: abs(part.change_ms))
    amount = fmt.signed(fmt.duration_ms(largest.change_ms), largest.change_ms)
    return f"{where} by {total}; the largest part is {largest.label}, {amount}"


def waterfall_method(step: Step) -> str:
    """Return how the waterfall is computed."""
    if step == "run":
        return (
            "Each side's step, as the best witness of it says, divided among owners and causes: by a replay of the trace without the profiler's "
            "own cost, or as profiled where the profiled steps are the best witness. What the run takes beyond them stands as outside the "
            "profiled steps. The changes of the parts sum exactly to the change of the step time."
        )
    return (
        "Every nanosecond of each side's steady window has one owner and, where it is lost, one cause. Per step, the changes of the parts sum "
        "exactly to the change of the mean device step of the profiles."
    )


def match_rows(rows: tuple[Match, ...]) -> pd.DataFrame:
    """Return matched kernels or operators as a table, largest change first."""
    return pd.DataFrame(
        [
            (
                _short(row.label),
                float(row.ns_a) / 1e6,
                float(row.ns_b) / 1e6,
                float(row.change_ns) / 1e6,
                float(row.count_a),
                float(row.count_b),
                WAYS[row.how],
                fmt.clean("; ".join(row.names_a)),
                fmt.clean("; ".join(row.names_b)),
            )
            for row in rows
        ],
        columns=list(COLUMNS),
    )


def _short(label: str) -> str:
    """Return a kernel's C++ name in short, as on the Kernels screen; other labels as they are."""
    return short(label, NAME) if "<" in label else fmt.clean(label, NAME)


def match_title(rows: tuple[Match, ...], kind: str) -> str:
    """Return the finding of a table of matches: the largest change."""
    if not rows or not rows[0].change_ns:
        return f"No {kind} changed its time" if rows else f"No {kind}s to compare"
    first = rows[0]
    change = float(first.change_ns) / 1e6
    return f"The {kind} time that changed most: {_short(first.label)}, {fmt.signed(fmt.duration_ms(change), change)} a step"


def metric_rows(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """Return label, A, B and change of every metric that at least one side has."""
    return [
        (METRICS[c.key].label, fmt.reading(c.key, c.a), fmt.reading(c.key, c.b), change_text(c))
        for c in comparison.metrics
        if c.a.value is not None or c.b.value is not None
    ]


def changed_rows(comparison: Comparison) -> tuple[list[tuple[str, str, str, str]], int]:
    """Return ``metric_rows`` of the metrics that changed, largest relative change first, each marked better or worse; and how many did not."""
    known = [c for c in comparison.metrics if c.a.value is not None or c.b.value is not None]
    changed = sorted((c for c in known if c.change != 0), key=_effect, reverse=True)
    rows = [(METRICS[c.key].label, fmt.reading(c.key, c.a), fmt.reading(c.key, c.b), marked_change(c)) for c in changed]
    return rows, len(known) - len(changed)


def _effect(change: MetricChange) -> float:
    """Return how large a change is against A; below all others where a side is missing."""
    if change.change is None or not change.a.value:
        return -1.0
    return abs(change.change / change.a.value)


def marked_change(change: MetricChange) -> str:
    """Return a metric's change with a mark that differs in shape: ✓ better, ✗ worse; neither where the metric has no better end."""
    text, better = change_text(change), METRICS[change.key].better
    if not change.change or better == "neither":
        return text
    return f"{text} ✓ better" if (change.change < 0) == (better == "lower") else f"{text} ✗ worse"


def change_text(change: MetricChange) -> str:
    """Return a metric's change: points for shares, else the amount and percent; why it is missing where it is."""
    moved, unit = change.change, METRICS[change.key].unit
    if moved is None:
        return change.a.why_missing or change.b.why_missing or fmt.MISSING
    if moved == 0:
        return "none"
    if unit == "share":
        return fmt.signed(f"{fmt.number(moved * 100, 2)}\u00a0points", moved)
    text = fmt.signed(fmt.in_unit(moved, unit), moved)
    return f"{text} ({fmt.signed(fmt.share(moved / change.a.value), moved)})" if change.a.value else text


def sentences(comparison: Comparison) -> list[str]:
    """Return what a training's later steps lose time to, and what limits the verdict: where profiles and runs disagree, reasons not to compare."""
    limits = [
        *filter(None, [stretches.why(comparison)]),
        *([comparison.disagreement] if comparison.disagreement else []),
        *(reason.sentence for reason in comparison.reasons),
    ]
    return [spaced(sentence) for sentence in limits]


def tested(comparison: Comparison) -> str | None:
    """Return what was predicted of the fixes, beside what came: Predicted ≈ 159 ms for …, measured 157 ms. None where nothing was predicted."""
    prediction = comparison.prediction
    if prediction is None:
        return None
    actions = {finding.rule: action(finding) for finding in comparison.findings_fixed}
    fixes = "; ".join(actions.get(rule, fmt.heading(rule)) for rule in prediction.rules)
    predicted, measured = fmt.duration_ms(prediction.predicted_ms), fmt.duration_ms(prediction.measured_ms)
    return f"Predicted ≈ {predicted}, measured {measured}: {fixes}."


def dots_title(a: list[float], b: list[float]) -> str:
    """Return the finding of the step dots: whether the ranges overlap."""
    if not a or not b:
        return "One side has no counted steps"
    apart = max(a) < min(b) or max(b) < min(a)
    return (
        f"Profiled steps: {fmt.span_ms(min(a), max(a))} in A, {fmt.span_ms(min(b), max(b))} in B; "
        f"they {'do not overlap' if apart else 'overlap'}"
    )


def steps(comparison: Comparison) -> tuple[list[float], list[float]]:
    """Return both sides' profiled device steps, ms."""
    a, b = (
        [step for run in side.runs if run.lead is not None for step in run.lead.device_step_ms]
        for side in (comparison.a, comparison.b)
    )
    return a, b


def two_steps_title(parts: list[Bar], step: Step) -> str:
    """Return the finding of the two step bars: how much of either step the GPU is idle."""
    shares = []
    for value in ("ms_a", "ms_b"):
        total = sum(getattr(part, value) for part in parts)
        idle = sum(getattr(part, value) for part in parts if part.owner == "idle")
        shares.append(fmt.share(idle / total) if total else fmt.share(0.0))
    return f"The GPU waits {shares[0]} of A's {'step' if step == 'run' else 'profiled step'} and {shares[1]} of B's"


def matching(rows: pd.DataFrame, search: str | None) -> pd.DataFrame:
    """Return the rows with ``search`` in any of their names."""
    if not search or rows.empty:
        return rows
    text = rows["what"] + " " + rows["names_a"] + " " + rows["names_b"]
    return rows[text.str.contains(search, case=False, regex=False)]
