"""The audit in words: its lines for one run, and side by side for two runs."""

from __future__ import annotations

from collections.abc import Callable

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.metrics.reading import Reading
from sawtooth.analysis.run.audit import AuditRow, audit
from sawtooth.analysis.run.model import RunResult
from sawtooth.app import format as fmt
from sawtooth.app.words.comparisons.changes import MARKS, UNMARKED
from sawtooth.app.words.comparisons.row import ComparisonRow, reasons_once

TITLE = "Audit"
AUDITED_METRICS = frozenset(
    {"best_step_time_ms", "nvml_gpu_util_mean", "mfu", "peak_memory_bytes"}
)  # These are also lines of the audit.
ALSO_NUMBERS = frozenset(
    {"step_time_ms", "utilization", "busy_share", "mfu", "peak_memory_bytes"}
)  # Keys of lines that the list of numbers also contains.
# The factors of a line that is computed from the step time. The function returns the other factor, and the text has its unit.
FACTORS: dict[str, tuple[Callable[[float, float], float], str]] = {
    "energy_per_step_j": (lambda joules, step_ms: 1000 * joules / step_ms, "{amount} W × {step}"),
    "hours_per_epoch": (lambda hours, step_ms: hours * 3.6e6 / step_ms, "{amount} steps × {step}"),
    "throughput": (lambda rate, step_ms: rate * step_ms / 1000, "{amount} in {step}"),
}


def rows(result: RunResult) -> list[tuple[str, str]]:
    """Return label and value of every audit line, or why the value is unknown.

    A run without GPU work has only the known lines, and none if only the step time is known.
    """
    step_ms = result.metrics["best_step_time_ms"].value
    lines = []
    for row in audit(result):
        if row.reading.value is not None:
            lines.append((row.label, _value_and_factors(row, step_ms)))
        elif result.lead is not None:
            lines.append((row.label, str(row.reading.why_missing)))
    return lines if len(lines) > 1 else []


def step_time(result: RunResult) -> str:
    """Return the run's step time with its interval, such as "≈ 16.7 ms (15.6 to 17.8 ms)"."""
    row = next(row for row in audit(result) if row.key == "step_time_ms")
    return _value_and_factors(row, row.reading.value)


def known_and_unknown(
    result: RunResult, left_out: frozenset[str] = frozenset()
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the lines of ``rows`` with a value, and the others grouped by their reason.

    Each of the others has the labels with the same reason, and the reason. Lines with a key in ``left_out`` are in neither list.
    """
    unknown: dict[str, list[str]] = {}
    shown_rows = [row for row in audit(result) if row.key not in left_out]
    for row in shown_rows:
        if row.reading.value is None:
            unknown.setdefault(str(row.reading.why_missing), []).append(row.label)
    labels = {row.label for row in shown_rows}
    known_rows = [(label, value) for label, value in rows(result) if value not in unknown and label in labels]
    names = [f"{labels[0]}{''.join(f', {label[0].lower()}{label[1:]}' for label in labels[1:])}" for labels in unknown.values()]
    return known_rows, list(zip(names, unknown, strict=True))


def _value_and_factors(row: AuditRow, step_ms: float | None) -> str:
    """Return a line's value, range and factors, such as "≈ 17.5 J (16.4 to 18.5 J): 541 W × 32.3 ms"."""
    text, reading = shown(row, row.reading), row.reading
    if reading.low is not None and reading.high is not None:
        low, high = (fmt.in_unit(end, row.unit).strip() for end in (reading.low, reading.high))
        number, _, unit = low.partition("\u00a0")
        text += f" ({number if high.endswith(unit) else low} to {high})"
    if row.key in FACTORS and step_ms and reading.value is not None:
        other_factor, factors = FACTORS[row.key]
        amount = fmt.number(other_factor(reading.value, step_ms))
        text += f": {factors.format(amount=amount, step=fmt.duration_ms(step_ms))}"
    return text


def pair_rows(comparison: Comparison) -> list[ComparisonRow]:
    """Return label, A, B and change of every line that at least one side has.

    If a GPU worked on only one side, both sides must have the line. The list is empty if there is only the step time.
    """
    lines = []
    is_enough = any if comparison.a.gpu_worked and comparison.b.gpu_worked else all
    for line in comparison.audit:
        if not is_enough(reading.value is not None for reading in (line.a, line.b)):
            continue
        change = line.a.why_missing or line.b.why_missing or "none"
        if line.change is not None and line.a.value and line.change:
            word = comparison.audit_word(line)
            amount = fmt.signed(fmt.share(line.change / line.a.value), line.change)
            if line.row.unit == "share":
                amount = fmt.points(line.change)
            change = UNMARKED.get(word) or f"{amount}{MARKS.get(word, '')}"
        if comparison.unrelated and line.change is not None:
            change = fmt.MISSING
        lines.append(ComparisonRow(line.row.label, shown(line.row, line.a), shown(line.row, line.b), change))
    return reasons_once(lines) if len(lines) > 1 else []


def shown(row: AuditRow, reading: Reading) -> str:
    """Return a line's value with its unit, and with ≈ or the sign of a bound if it is not certain."""
    if reading.value is None:
        return fmt.MISSING
    text = fmt.in_unit(reading.value, row.unit) if row.unit else fmt.number(reading.value)
    if reading.bound is not None:
        return fmt.with_bound_sign(text, reading.bound)
    return text if reading.trust == "ok" or text.startswith("<") else f"≈\u00a0{text}"
