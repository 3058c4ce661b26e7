"""The confidence interval of a change in words, as a time and as a ratio."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sawtooth.analysis.compare.comparison import Comparison
from sawtooth.analysis.compare.significance.certainty import Verdict
from sawtooth.analysis.compare.throughput import Throughput
from sawtooth.analysis.quantiles import normal
from sawtooth.app import format as fmt
from sawtooth.app.charts.step_pair import Ratio

MIN_WIDE_RATIO = 1.1  # Ratio of an interval's ends. A wider interval of ratios has two digits.
MIN_TWO_DIGITS = 1.5  # A smaller ratio has three digits, because with two digits it would read as "no change".
TO_80 = normal(0.9) / normal(0.975)  # Ratio of the widths of an 80 % and a 95 % interval.
RECORDED = "recorded"  # The word for a ratio of two recordings. It is not "measured", because one step time may be estimated.


def of_change(low_ms: float | None, high_ms: float | None) -> str:
    """Return the 95 % interval of a change in words; an open end is None."""
    if low_ms is None and high_ms is None:
        return "the size of the change is not known."
    if low_ms is None or high_ms is None:
        bound = _below(high_ms) if high_ms is not None else _above(low_ms or 0.0)
        return f"a step is {bound} (95 % interval)."
    if low_ms * high_ms < 0:
        return f"a step is between {_longer(low_ms)} and {_longer(high_ms)} (95 % interval)."
    smaller_ms, larger_ms = sorted((abs(low_ms), abs(high_ms)))
    direction = "shorter" if low_ms + high_ms < 0 else "longer"
    return f"a step is {fmt.span_ms(smaller_ms, larger_ms)} {direction} (95 % interval)."


def of_ratio(comparison: Comparison) -> str:
    """Return the 95 % interval of the ratio, such as 3.73 to 4.18 ×; "" if it is unknown."""
    verdict = comparison.verdict
    low, high = verdict.ratio or (None, None)
    if not verdict.shown or not verdict.size_known or not low or not high:
        return ""
    low, high = (low, high) if verdict.word == "faster" else (1 / high, 1 / low)
    digits = ratio_digits(verdict)
    return f"{fmt.number(low, digits)} to {fmt.times(high, digits)}"


def stated_ratio(comparison: Comparison) -> str:
    """Return B's factor against A, such as "5.0 × as fast" or "1.2 × as long"; "" if not known."""
    best, verdict = comparison.best, comparison.verdict
    if comparison.throughput is not None or comparison.unrelated or not verdict.size_known or not best.a or not best.b:
        return ""
    digits = ratio_digits(verdict)
    if verdict.answer == "faster":
        return f"{fmt.times(best.a / best.b, digits)} as fast"
    return f"{fmt.times(best.b / best.a, digits)} as long" if verdict.answer == "slower" else ""


def ratio_digits(verdict: Verdict) -> int:
    """Return how many digits of the steps' ratio to show."""
    low, high = verdict.ratio or (None, None)
    if not low or not high:
        return 3
    return 2 if high > MIN_WIDE_RATIO * low and max(low, 1 / high) > MIN_TWO_DIGITS else 3


def ratios(comparison: Comparison) -> list[Ratio]:
    """Return the predicted ratio, if B tests it, and the ratio of the step times.

    The ratios are A's step time ÷ B's; B's ÷ A's if B is slower, as in the headline. With a prediction, both intervals contain
    80 %, else the interval contains 95 % (``level``). The list is empty if the interval of the ratio is open or not known.
    """
    low, high = comparison.verdict.ratio or (None, None)
    a, b = comparison.best.a, comparison.best.b
    if not low or not high or not a or not b or comparison.unrelated:
        return []
    digits, predicted = ratio_digits(comparison.verdict), comparison.prediction
    shown = [Ratio(RECORDED, a / b, low, high, digits=digits)]
    if predicted is not None and predicted.low_ms and predicted.high_ms and predicted.is_tested:
        shown = [Ratio(RECORDED, a / b, *interval_80(a / b, low, high), digits=digits)]
        low, high = a / predicted.high_ms, a / predicted.low_ms
        shown.insert(0, Ratio("predicted", a / predicted.predicted_ms, low, high, predicted=True, digits=digits))
    return [_inverse(ratio) for ratio in shown] if comparison.verdict.answer == "slower" else shown


def level(ratios: Sequence[Ratio]) -> str:
    """Return what the intervals of ``ratios`` contain, such as "80 % intervals"."""
    return "80\u00a0% intervals" if len(ratios) > 1 else "95\u00a0% interval"


def interval_80(value: float, low: float, high: float) -> tuple[float, float]:
    """Return the 80 % interval of a ratio with this 95 % interval.

    The logarithm's error has a normal distribution, on each side with its own width. If it has a t distribution, the result is
    too wide, never too narrow.
    """
    return value * (low / value) ** TO_80, value * (high / value) ** TO_80


def _inverse(ratio: Ratio) -> Ratio:
    return replace(ratio, value=1 / ratio.value, low=1 / ratio.high, high=1 / ratio.low)


def no_change(verdict: Verdict) -> str:
    """Return the largest change that the interval allows, as a statement."""
    return f"No change larger than {fmt.share(verdict.largest_change or 0.0)}"


def remedy(comparison: Comparison) -> str | None:
    """Return what to record if the recordings do not show which side is faster; else None."""
    if comparison.answer != "cannot_tell" or comparison.unrelated:
        return None
    if any(source not in ("user", "marks") for side in comparison.sources for source in side):
        return "Record both sides with `sawtooth run`, which times every step."
    if any(run.host_bound for run in (*comparison.a.measured, *comparison.b.measured)):
        return "Record each side several times, and compare all: about 5 runs per side show a change of 30 %, and 11 runs show 15 %."
    return "Record each side three times or more, and compare all of them."


def _below(high_ms: float) -> str:
    """Return a change of at most ``high_ms`` in words, such as "at least 5 ms shorter"."""
    return f"at {'least' if high_ms < 0 else 'most'} {_longer(high_ms)}"


def _above(low_ms: float) -> str:
    """Return a change of at least ``low_ms`` in words, such as "at most 5 ms shorter"."""
    return f"at {'most' if low_ms < 0 else 'least'} {_longer(low_ms)}"


def of_rate(rate: Throughput) -> str:
    """Return the interval of the work per second, such as ": 19.2 to 21.0 × the samples per second"."""
    if rate.interval is None or not rate.verdict.shown:
        return ""
    low, high = rate.interval if rate.ratio >= 1 else (1 / rate.interval[1], 1 / rate.interval[0])
    unit = f"the {work_name(rate)} per second" if rate.ratio >= 1 else "as long"
    return f": {fmt.number(low, 3)} to {fmt.times(high)} {unit} (95 % interval)"


def of_rates(rate: Throughput, a: str) -> str:
    """Return B's work per second, or B's time for the same work, compared with the run named ``a``."""
    if rate.ratio >= 1:
        return f"does {fmt.times(rate.ratio)} the {work_name(rate)} per second of {a}"
    low, high = rate.interval or (None, None)
    digits = 2 if low and high and high > MIN_WIDE_RATIO * low and rate.ratio < 1 / MIN_TWO_DIGITS else 3
    return f"takes {fmt.times(1 / rate.ratio, digits)} as long as {a} for the same {_work(rate)}"


def other_work(comparison: Comparison) -> str:
    """Return how much of A's work a step of B does, as a clause; "" if the work is equal or not known."""
    rate, best = comparison.throughput, comparison.best
    if rate is None or not best.a or not best.b:
        return ""
    return f"a step of B also does {fmt.factor(rate.ratio * best.b / best.a)} the {_work(rate)}, so it is not the same work"


def _work(rate: Throughput) -> str:
    return "arithmetic" if work_name(rate) == "floating-point operations" else work_name(rate)


def work_name(rate: Throughput) -> str:
    """Return the name of the counted work; it is "samples" if the ratio of the batches is known."""
    if rate.batch is not None:
        return "samples"
    return "floating-point operations" if rate.unit == "FLOP" else rate.unit


def _longer(ms: float) -> str:
    return f"{fmt.duration_ms(abs(ms))} {'shorter' if ms < 0 else 'longer'}"
