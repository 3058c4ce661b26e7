"""A failed check of a recording: its texts, and its effects on metrics and rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sawtooth.analysis.metrics.mfu import LOWER_BOUND, UPPER_BOUND
from sawtooth.analysis.metrics.reading import Reading, missing, with_caution
from sawtooth.analysis.metrics.registry import METRICS

# Effect of a check on a metric: withheld, a lower or upper bound, or less trust.
Effect = Literal["unknown", "least", "most", "caution"]


@dataclass(frozen=True)
class FailedCheck:
    """One check that a recording failed.

    * ``count``: the number of wrong or missing items. ``sentence``: what was found. ``advice``: what to do.
    * ``headline``: set if the check changes the answer about the run. It then replaces all other headlines.
    * ``evidence``: the unusable sources, named as in ``Rule.reads``. ``effects``: the effect on each metric, by its key.
    """

    key: str
    count: int
    sentence: str
    advice: str = ""
    headline: str | None = None
    severity: str = "data_loss"
    evidence: tuple[str, ...] = ()
    effects: Mapping[str, Effect] = field(default_factory=dict)


def deciding_check(failed: Iterable[FailedCheck]) -> FailedCheck | None:
    """Return the first check that changes the answer about the run; None without one."""
    return next((check for check in failed if check.headline is not None), None)


def weaken_metrics(metrics: Mapping[str, Reading], failed: Iterable[FailedCheck]) -> dict[str, Reading]:
    """Return ``metrics`` after the effects of the failed checks."""
    result = dict(metrics)
    for check in failed:
        for key, effect in check.effects.items():
            result[key] = _weaken(key, result[key], effect, check.sentence)
    return result


def _weaken(key: str, reading: Reading, effect: Effect, reason: str) -> Reading:
    if reading.value is None:
        return reading
    if effect == "unknown":
        return missing(reason)
    if effect == "caution":
        return with_caution(reading, reason)
    low, high = (reading.value, METRICS[key].high) if effect == "least" else (METRICS[key].low, reading.value)
    note = f"{LOWER_BOUND if effect == 'least' else UPPER_BOUND}: {reason}"
    return replace(reading, trust="unusable", notes=(note, *reading.notes), low=low, high=high, bound=effect)
