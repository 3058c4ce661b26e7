"""A comparison in sentences and rows: the same words on the page, in the HTML report, in Markdown and in the terminal."""

from __future__ import annotations

import re

import pandas as pd

from analysis.compare import Comparison, MetricChange
from analysis.matching import Match
from analysis.metrics import METRICS
from analysis.sweep import Sweep
from app import format as fmt
from app.charts.waterfall import Bar

TIMES_FROM = 1.5  # "80 % faster" for a step of a fifth reads as less than it is: from here the ratio says it
WAYS = {
    "name": "same name",
    "operator_and_shape": "same operator and shapes",
    "operator": "same operator, other shapes",
    "category": "same category",
    "only_a": "only in A",
    "only_b": "only in B",
}
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
    """Return the sides' names, cleaned; A and B where both are called alike."""
    a, b = fmt.clean(comparison.a.name, 60), fmt.clean(comparison.b.name, 60)
    return (a, b) if a != b else ("A", "B")


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
    """Return the verdict in one sentence, with how sure it is."""
    a, b = names(comparison)
    word, share = comparison.verdict.word, comparison.best.change_share
    if word in ("faster", "slower") and share is not None and comparison.best.a and comparison.best.b:
        speed = comparison.best.a / comparison.best.b
        if max(speed, 1 / speed) < TIMES_FROM:
            return f"{b} is {fmt.share(abs(share))} {word} than {a}: {step_times(comparison)} a step."
        times = fmt.factor(max(speed, 1 / speed))
        return f"{b} is {times} {'as fast' if speed > 1 else 'as slow'} as {a}: {step_times(comparison)} a step."
    if word == "no_difference_shown":
        return f"No difference shown between {a} and {b}: {step_times(comparison)} a step."
    return f"Whether {b} differs from {a} cannot be told: {step_times(comparison)} a step."


def certainty(comparison: Comparison) -> str:
    """Return what limits the verdict: its interval, confidence and reason."""
    word = comparison.verdict
    parts = [f"Confidence {word.confidence}."]
    if word.ci95_ms is not None and word.ci95_ms != (0.0, 0.0):
        low, high = (fmt.signed(fmt.duration_ms(ms), ms) for ms in word.ci95_ms)
        parts.append(f"95 % interval of the change {low} to {high}.")
    return " ".join([*parts, spaced(word.why)])


def has_estimate(comparison: Comparison) -> bool:
    """Tell whether both sides have a replay without the profiler's cost."""
    return bool(comparison.waterfall) and all(row.unprofiled_change_ms is not None for row in comparison.waterfall)


def bars(comparison: Comparison, *, unprofiled: bool = False) -> list[Bar]:
    """Return the waterfall's rows for charts: as profiled (exact), or replayed without the profiler's cost."""
    if unprofiled:
        return [Bar(r.owner, r.cause, r.unprofiled_ms_a or 0.0, r.unprofiled_ms_b or 0.0) for r in comparison.waterfall]
    return [Bar(r.owner, r.cause, float(r.ns_a) / 1e6, float(r.ns_b) / 1e6) for r in comparison.waterfall]


def waterfall_title(parts: list[Bar], *, unprofiled: bool) -> str:
    """Return the waterfall's finding: the largest change."""
    where = "Without the profiler (≈)" if unprofiled else "Under the profiler"
    change = sum(part.change_ms for part in parts)
    largest = max(parts, key=lambda part: abs(part.change_ms), default=None)
    if largest is None or not largest.change_ms:
        return f"{where} no part of the step changed"
    total = fmt.signed(fmt.duration_ms(change), change)
    part = fmt.signed(fmt.duration_ms(largest.change_ms), largest.change_ms)
    return f"{where} the step changed by {total}; the largest part is {largest.label}, {part}"


def waterfall_method(*, unprofiled: bool) -> str:
    """Return how the waterfall is computed."""
    if unprofiled:
        return (
            "Each side's trace is replayed without the profiler's own cost, and the replayed step divided among owners and causes. The parts "
            "sum to the change of the replayed step; it is an estimate."
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
                fmt.clean(row.label),
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


def match_title(rows: tuple[Match, ...], kind: str) -> str:
    """Return the finding of a table of matches: the largest change."""
    if not rows or not rows[0].change_ns:
        return f"No {kind} takes another time" if rows else f"No {kind}s to compare"
    first = rows[0]
    change = float(first.change_ns) / 1e6
    return (
        f"The {kind} time that changed most: {fmt.clean(first.label, 70)}, {fmt.signed(fmt.duration_ms(change), change)} a step"
    )


def metric_rows(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """Return label, A, B and change of every metric that at least one side has."""
    return [
        (METRICS[c.key].label, fmt.reading(c.key, c.a), fmt.reading(c.key, c.b), change_text(c))
        for c in comparison.metrics
        if c.a.value is not None or c.b.value is not None
    ]


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
    """Return what stands beside the verdict: the disagreement of profiles and runs, and reasons not to compare."""
    said = [
        *([comparison.disagreement] if comparison.disagreement else []),
        *(reason.sentence for reason in comparison.reasons),
    ]
    return [spaced(sentence) for sentence in said]


def dots_title(a: list[float], b: list[float]) -> str:
    """Return the finding of the step dots: whether the ranges overlap."""
    if not a or not b:
        return "One side has no counted steps"
    apart = max(a) < min(b) or max(b) < min(a)
    return (
        f"Profiled steps: {fmt.duration_ms(min(a))} to {fmt.duration_ms(max(a))} in A, {fmt.duration_ms(min(b))} to {fmt.duration_ms(max(b))} in B; "
        f"they {'do not overlap' if apart else 'overlap'}"
    )


def steps(comparison: Comparison) -> tuple[list[float], list[float]]:
    """Return both sides' profiled device steps, ms."""
    a, b = (
        [step for run in side.runs if run.lead is not None for step in run.lead.device_step_ms]
        for side in (comparison.a, comparison.b)
    )
    return a, b


def two_steps_title(parts: list[Bar], *, unprofiled: bool) -> str:
    """Return the finding of the two step bars: how much of either step the GPU is idle."""
    shares = []
    for value in ("ms_a", "ms_b"):
        total = sum(getattr(part, value) for part in parts)
        idle = sum(getattr(part, value) for part in parts if part.owner == "idle")
        shares.append(fmt.share(idle / total) if total else fmt.share(0.0))
    about = "≈ " if unprofiled else ""
    return f"The GPU waits {about}{shares[0]} of A's step and {about}{shares[1]} of B's"


def matching(rows: pd.DataFrame, search: str | None) -> pd.DataFrame:
    """Return the rows with ``search`` in any of their names."""
    if not search or rows.empty:
        return rows
    text = rows["what"] + " " + rows["names_a"] + " " + rows["names_b"]
    return rows[text.str.contains(search, case=False, regex=False)]


def sweep_columns(found: Sweep) -> dict[str, str]:
    """Return the headings of a sweep's table."""
    return {
        "value": fmt.clean(found.setting, 40),
        "run": "Run",
        "throughput": f"{found.unit} per second",
        "step_ms": "Step, ms",
        "utilization": "Utilization, %",
        "mfu": "MFU, %",
        "memory_gb": "Peak memory, GB",
        "note": "",
    }


def sweep_rows(found: Sweep) -> pd.DataFrame:
    """Return a sweep as a table; utilization is NVML's where telemetry has it, else the profile's busy share."""

    def percent(value: float | None) -> float | None:
        return None if value is None else 100 * value

    rows = []
    for i, point in enumerate(found.points):
        measured = point.reading("nvml_gpu_util_mean").value
        memory = point.reading("peak_memory_bytes").value
        rows.append(
            (
                fmt.clean(point.value, 40),
                fmt.clean(point.run.manifest.name, 60),
                point.throughput.value,
                point.reading("step_time_best_ms").value,
                percent(measured if measured is not None else point.reading("gpu_busy_share").value),
                percent(point.reading("mfu").value),
                memory / 1e9 if memory is not None else None,
                "sweet spot" if i == found.sweet_spot else "",
            )
        )
    return pd.DataFrame(rows, columns=list(sweep_columns(found))).astype(
        dict.fromkeys(("throughput", "step_ms", "utilization", "mfu", "memory_gb"), "float64")
    )
