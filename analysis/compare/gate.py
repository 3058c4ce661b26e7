"""Gates for continuous integration, such as ``best_step_time_ms:+5%``.

This gate fails if B's value exceeds A's by more than 5 %. A gate is ``KEY:SIGN NUMBER UNIT``. ``+`` fails on a rise,
``−`` on a fall. Units are ``%`` of A's value, ``pp`` (percentage points) for shares, or an absolute amount in the
metric's unit or a related one (ms, s, MB, GiB, TFLOP/s, …).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.metrics.registry import ALIASES, METRICS
from sawtooth.analysis.units import in_memory, in_words, significant
from sawtooth.ingest.errors import UsageError

PASSED, REGRESSED, COULD_NOT_JUDGE = 0, 1, 2
STEP_TIME_KEY = "best_step_time_ms"
# Factor between two step times from traces. If two recorded estimates differed by this factor, their direction was always
# right.
CLEAR_FACTOR = 3.0
_PATTERN = re.compile(r"\s*([a-z0-9_]+)\s*:\s*([+\-−])\s*(\d+(?:\.\d+)?|\.\d+)\s*(.*?)\s*")
UNITS: dict[str, dict[str, float]] = {
    "ms": {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3},
    "s": {"ms": 1e-3, "s": 1.0, "min": 60.0},
    "bytes": {
        "B": 1.0,
        "kB": 1e3,
        "KB": 1e3,
        "MB": 1e6,
        "GB": 1e9,
        "TB": 1e12,
        "KiB": 2.0**10,
        "MiB": 2.0**20,
        "GiB": 2.0**30,
        "bytes": 1.0,
    },
    "share": {"pp": 0.01},
    "count": {"": 1.0, "count": 1.0},
    "FLOP": {"FLOP": 1.0, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15},
    "TFLOP/s": {"GFLOP/s": 1e-3, "TFLOP/s": 1.0, "PFLOP/s": 1e3},
}
SIGNIFICANT_DIGITS = 5  # Digits of a value in a gate's sentence. They suffice for a limit as small as 0.1 %.
WORDS: dict[str, Callable[[float], str]] = {  # Functions that format a value of each unit for people.
    "ms": lambda value: in_words(value, SIGNIFICANT_DIGITS),
    "s": lambda value: in_words(value * 1e3, SIGNIFICANT_DIGITS),
    "bytes": lambda value: in_memory(value, SIGNIFICANT_DIGITS),
    "share": lambda value: f"{significant(value * 100, SIGNIFICANT_DIGITS)} %",
    "count": lambda value: significant(value, SIGNIFICANT_DIGITS),
    "FLOP": lambda value: f"{significant(value / 1e12, SIGNIFICANT_DIGITS)} TFLOP",
    "TFLOP/s": lambda value: f"{significant(value, SIGNIFICANT_DIGITS)} TFLOP/s",
}


@dataclass(frozen=True)
class Gate:
    """One condition; ``limit`` is positive.

    It is a share of A's value if ``relative``, else an amount in the metric's unit.
    """

    text: str
    key: str
    direction: Literal["rise", "fall"]
    limit: float
    relative: bool


@dataclass(frozen=True)
class GateOutcome:
    """The result of a gate; ``code`` is 0 for passed, 1 for regressed, 2 for could not judge."""

    gate: Gate
    code: int
    sentence: str


def parse_gate(text: str) -> Gate:
    """Parse one ``--fail-on`` value.

    Raises UsageError, which says what is wrong with the value.
    """
    match = _PATTERN.fullmatch(text)
    if not match:
        raise UsageError(f"{text!r} is not a gate. Write KEY:+LIMIT, such as best_step_time_ms:+5% or mfu:-2pp.")
    name, sign, number, unit = match.groups()
    key = ALIASES.get(name, name)
    if key not in METRICS:
        raise UsageError(f"{name!r} is not a metric. Metrics are {', '.join(METRICS)}.")
    direction: Literal["rise", "fall"] = "rise" if sign == "+" else "fall"
    if unit == "%":
        return Gate(text, key, direction, float(number) / 100, True)
    scales = UNITS[METRICS[key].unit]
    if unit not in scales:
        units = ", ".join(["%", *(u for u in scales if u)])
        raise UsageError(
            f"{text!r}: {name} has no unit {unit!r}; use one of {units}." if unit else f"{text!r} needs a unit: {units}."
        )
    return Gate(text, key, direction, float(number) * scales[unit], False)


def judge(comparison: Comparison, gates: Sequence[Gate]) -> tuple[int, list[GateOutcome]]:
    """Return the exit code of all gates and the outcome of each.

    A regression takes precedence over a gate that could not be judged.
    """
    outcomes = [_judge(comparison, gate) for gate in gates]
    codes = {outcome.code for outcome in outcomes}
    return (REGRESSED if REGRESSED in codes else COULD_NOT_JUDGE if COULD_NOT_JUDGE in codes else PASSED), outcomes


def _judge(comparison: Comparison, gate: Gate) -> GateOutcome:
    change = next(change for change in comparison.metrics if change.key == gate.key)
    metric = METRICS[gate.key]
    for side, reading in (("A", change.a), ("B", change.b)):
        if reading.value is None:
            return GateOutcome(
                gate, COULD_NOT_JUDGE, f"{gate.text}: not judged, {metric.label} of {side} is not known. {reading.why_missing}"
            )
        if reading.trust == "unusable":
            return GateOutcome(
                gate,
                COULD_NOT_JUDGE,
                f"{gate.text}: not judged, {metric.label} of {side} cannot be used. {' '.join(reading.notes)}",
            )
    assert change.a.value is not None and change.b.value is not None
    moved = change.b.value - change.a.value
    if gate.relative and not change.a.value and moved:
        return GateOutcome(gate, COULD_NOT_JUDGE, f"{gate.text}: not judged, {metric.label} of A is 0 and has no percentage.")
    amount = moved / change.a.value if gate.relative and change.a.value else moved
    worse = amount if gate.direction == "rise" else -amount
    a, b = (WORDS[metric.unit](value) for value in (change.a.value, change.b.value))
    sentence = f"{metric.label} went from {a} to {b}{f' ({amount:+.2%})' if gate.relative else ''}"
    return (
        _step_time(comparison, gate, worse, sentence)
        if gate.key == STEP_TIME_KEY
        else _outcome_of_sentence(gate, worse, sentence)
    )


def _outcome_of_sentence(gate: Gate, worse: float, sentence: str) -> GateOutcome:
    if worse > gate.limit:
        return GateOutcome(gate, REGRESSED, f"{gate.text}: failed. {sentence}.")
    return GateOutcome(gate, PASSED, f"{gate.text}: passed. {sentence}.")


def _step_time(comparison: Comparison, gate: Gate, worse: float, sentence: str) -> GateOutcome:
    """Judge the step time by its verdict.

    A change beyond the limit counts only if the verdict shows it.
    """
    word = comparison.verdict
    if worse > gate.limit and not word.shown and _is_gross(comparison, gate):
        estimated = f"{sentence}. The size is uncertain, but no estimated change by a factor of {CLEAR_FACTOR:g} has had the wrong direction."
        return GateOutcome(gate, REGRESSED, f"{gate.text}: failed. {estimated}")
    if word.word == "inconclusive":
        return GateOutcome(gate, COULD_NOT_JUDGE, f"{gate.text}: could not be judged. {sentence}. {word.why}")
    is_proven = word.word == ("slower" if gate.direction == "rise" else "faster")
    if worse > gate.limit and not is_proven:
        return GateOutcome(
            gate,
            COULD_NOT_JUDGE,
            f"{gate.text}: could not be judged. {sentence}, beyond the limit, but this change is not certain. {word.why}",
        )
    outcome = _outcome_of_sentence(gate, worse, sentence)
    unseen = _resolution_problem(comparison, gate) if outcome.code == PASSED and not word.shown else None
    return replace(outcome, sentence=f"{outcome.sentence} {unseen}") if unseen is not None else outcome


def _is_gross(comparison: Comparison, gate: Gate) -> bool:
    """Return whether the step times differ by more than any error of a trace, in the gate's direction.

    Return False if the runs train different models.
    """
    a, b = comparison.best.a, comparison.best.b
    if comparison.unrelated or not a or not b:
        return False
    return (b / a if gate.direction == "rise" else a / b) >= CLEAR_FACTOR


def _resolution_problem(comparison: Comparison, gate: Gate) -> str | None:
    """Return a sentence if these recordings could not show a change as small as the gate's limit.

    Return None if they could.
    """
    visible, reading_a = comparison.verdict.smallest_visible_share, comparison.best.a
    limit = gate.limit if gate.relative else gate.limit / reading_a if reading_a else None
    if visible is None or limit is None or visible <= limit:
        return None
    small, visible_text = (f"{significant(share * 100, 2)} %" for share in (limit, visible))
    return f"These recordings cannot show a change of {small}, only one above {visible_text}."
