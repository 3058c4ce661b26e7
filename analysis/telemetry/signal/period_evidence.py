"""Step time from the period of GPU activity, checked against kernel time ÷ utilization.

A period of a whole number of steps is a measurement of many steps, like a stopwatch. Kernel time ÷ utilization is less exact: the
run's kernels differ from the profiled ones, and utilization has whole percents. But the period alone does not show how many steps
it has, whether samples hide a faster period, or whether something else than steps repeats. Kernel time ÷ utilization decides
this, by its 90 % interval:

* The number of steps fits if period ÷ number lies in the interval, and no period could fit two numbers, because the interval is
  narrower than the ratio of neighbouring numbers. So one step per period needs high ÷ low below 2, two steps need 1.5.
* Faster periods that would look the same in the samples must be shorter than the interval's low end.

Then the period gives the step time, and both intervals hold: the step lies in their intersection.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sawtooth.analysis.metrics.step_time_evidence import StepTimeEvidence, host_drift
from sawtooth.analysis.telemetry.signal.sawtooth import Sawtooth
from sawtooth.analysis.units import in_words


def with_period(by_law: StepTimeEvidence, tooth: Sawtooth, signal: str) -> StepTimeEvidence:
    """Return telemetry's evidence with the step time of the period, if there is a period that fits it.

    ``by_law`` is the evidence of kernel time ÷ utilization, ``signal`` the name of the signal with the period ``tooth``. If no
    number of steps fits the period, ``by_law`` only gets a note that says so. It is returned unchanged if the period is not
    trustworthy, or if its interval is too wide to decide.
    """
    if by_law.ms is None or by_law.width is None or not is_trustworthy(tooth, by_law.low_ms):
        return by_law
    assert tooth.period_s is not None and tooth.error_s is not None and tooth.cycles is not None
    period_ms = 1e3 * tooth.period_s
    steps = steps_of_period(period_ms, by_law)
    repeats = f"{signal[0].upper()}{signal[1:]} repeats every {in_words(period_ms, 4)} (mean of {tooth.cycles:.0f} periods)"
    if steps is None:
        nearest = max(round(period_ms / by_law.ms), 1)
        if by_law.width >= _next_ratio(nearest):
            return by_law
        return replace(by_law, notes=(*by_law.notes, f"{repeats}. That is no whole number of such steps."))
    ms = period_ms / steps
    share = float(np.hypot(tooth.error_s / tooth.period_s, host_drift(tooth.cycles * tooth.period_s)))
    low, high = min(max(by_law.low_ms, ms / (1 + share)), ms), max(min(by_law.high_ms or ms, ms * (1 + share)), ms)
    a_period = "One period is one step" if steps == 1 else f"One period is {steps} steps"
    notes = (
        f"{repeats}. {a_period}, so a step takes {in_words(ms, 4)}.",
        f"Kernel time ÷ utilization gives {in_words(by_law.ms, 4)} ({in_words(by_law.low_ms)} to {in_words(by_law.high_ms or ms)}). No other "
        "number of steps per period fits this interval.",
        *by_law.notes[1:],
    )
    return replace(by_law, ms=ms, low_ms=low, high_ms=high, notes=notes, steps_per_period=steps)


def is_trustworthy(tooth: Sawtooth, shortest_step_ms: float) -> bool:
    """Return whether a period may give a step time.

    There are enough periods, all of them were counted, and no alias is possible. An alias is only possible if it is at least as
    long as ``shortest_step_ms``, the shortest step by other evidence.
    """
    counted = tooth.period_s is not None and tooth.error_s is not None and tooth.cycles is not None
    return counted and tooth.confidence != "low" and all(1e3 * alias < shortest_step_ms for alias in tooth.alias_periods_s)


def steps_of_period(period_ms: float, step: StepTimeEvidence) -> int | None:
    """Return the number of steps in a period by the interval of ``step``; None if none or several may fit."""
    if step.width is None:
        return None
    steps = int(period_ms // step.low_ms)
    return steps if steps >= 1 and step.contains(period_ms / steps) and step.width < _next_ratio(steps) else None


def _next_ratio(steps: int) -> float:
    return (steps + 1) / steps
