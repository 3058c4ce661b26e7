"""The confidence interval of a change in words, as a time and as a ratio."""

from __future__ import annotations

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.significance.change_interval import ratio_interval
from sawtooth.analysis.compare.throughput import Throughput
from sawtooth.app import format as fmt


def of_change(low_ms: float | None, high_ms: float | None, ratio: str = "") -> str:
    """Return the 95 % interval of a change (ms) in words; ``ratio`` gives the same as a ratio.

    An end may be open.
    """
    if low_ms is None and high_ms is None:
        return "nothing bounds the change."
    if low_ms is None or high_ms is None:
        bound = f"at most {_longer(high_ms)}" if high_ms is not None else f"at least {_longer(low_ms or 0.0)}"
        return f"a step is {bound} (95 % interval)."
    if low_ms * high_ms < 0:
        return f"a step is between {_longer(low_ms)} and {_longer(high_ms)} (95 % interval)."
    near, far = sorted((abs(low_ms), abs(high_ms)))
    return f"a step is {fmt.span_ms(near, far)} {'shorter' if low_ms + high_ms < 0 else 'longer'}{ratio} (95 % interval)."


def of_ratio(comparison: Comparison) -> str:
    """Return the interval of a shown change as a ratio, such as "3.73 to 4.18 × as fast".

    It is "" if the intervals of the step times do not give one.
    """
    verdict = comparison.verdict
    if not verdict.shown or verdict.ci95_ms is None:
        return ""
    ends = ratio_interval(comparison.a.measured, comparison.b.measured, verdict.ci95_ms)
    if ends is None:
        return ""
    faster = verdict.word == "faster"
    low, high = ends if faster else (1 / ends[1], 1 / ends[0])
    return f", {fmt.number(low, 3)} to {fmt.times(high)} as {'fast' if faster else 'long'}" if low > 1 else ""


def of_rate(rate: Throughput) -> str:
    """Return the interval of the work per second, such as ": 19.2 to 21.0 × the samples a second".

    It is "" if it is not known.
    """
    if rate.interval is None or not rate.verdict.shown:
        return ""
    low, high = rate.interval
    return f": {fmt.number(low, 3)} to {fmt.times(high)} the {work_name(rate)} a second (95 % interval)"


def work_name(rate: Throughput) -> str:
    """Return the name of the counted work; operations that stand for samples are called samples."""
    return "samples" if rate.batch is not None else "floating-point operations" if rate.unit == "FLOP" else rate.unit


def _longer(ms: float) -> str:
    return f"{fmt.duration_ms(abs(ms))} {'shorter' if ms < 0 else 'longer'}"
