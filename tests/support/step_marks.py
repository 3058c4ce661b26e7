"""Step marks with given times between them."""

import numpy as np

from sawtooth.analysis.telemetry.step_marks import Mark

MS = 1_000_000


def marks(*gaps_ms: float, profiled: range = range(0)) -> list[Mark]:
    ends = np.cumsum([0.0, *gaps_ms]) * MS
    return [Mark(step, int(end), "profile" if step in profiled else "train") for step, end in enumerate(ends)]
