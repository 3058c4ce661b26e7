"""Energy that a GPU used while it was sampled: by its counter, else by its power."""

from __future__ import annotations

from typing import NamedTuple

from sawtooth.analysis.telemetry.signal.means import counter_rises
from sawtooth.analysis.telemetry.signal.steady import F64, I64, weights_ns

MIN_COUNTED = 0.9  # Share of the sampled time that the counter's samples have to span.


class Energy(NamedTuple):
    """Energy in joules, and whether a counter gave it; energy from power lacks time without samples."""

    joules: float
    counted: bool


def energy(counter: tuple[I64, F64], power: tuple[I64, F64], span_ns: int) -> Energy | None:
    """Return the energy of all samples (times and values of counter and power); None if both are empty."""
    times, values = counter
    if len(times) > 1 and times[-1] - times[0] >= MIN_COUNTED * span_ns:
        return Energy(float(counter_rises(values).sum()), True)
    times, values = power
    if len(times) < 2:
        return None
    return Energy(float((values * weights_ns(times) / 1e9)[1:].sum()), False)
