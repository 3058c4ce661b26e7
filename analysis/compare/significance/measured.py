"""What is measured of one run for a comparison: its step time with its interval, and the steps that show its spread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sawtooth.analysis.compare.significance.bootstrap import F64
from sawtooth.analysis.metrics.step_sources import StepSource


@dataclass(frozen=True)
class Measured:
    """What one run knows of its step time: the profiled device steps in order, the best step time and where that came from (ms).

    ``source`` is user, marks, telemetry, estimate or profile; ``low_ms`` to ``high_ms`` is the best step time's 90 % interval (both None where
    none is known, ``high_ms`` alone None where nothing bounds it from above); ``recordings`` identify what was measured. ``recorded`` counts the steps of
    the recording, the first of a cycle included, which does not count (None: as many as ``steps_ms``). ``host_bound``: the GPU does not set the pace.
    ``on_host``: a trace shows that it computes there, and no GPU. ``works_ms`` is how long the GPU works in a step, which no step is shorter than; None where that is not known.
    """

    steps_ms: tuple[float, ...]
    best_ms: float | None
    source: StepSource = "profile"
    recordings: tuple[str, ...] = ()
    recorded: int | None = None
    low_ms: float | None = None
    high_ms: float | None = None
    host_bound: bool = False
    on_host: bool = False
    works_ms: float | None = None

    @property
    def longest_ms(self) -> float | None:
        """The longest that a step may be: the end of its interval, the best step time where it has none; None where nothing bounds it."""
        return self.high_ms if self.low_ms is not None else self.best_ms

    @property
    def length(self) -> int:
        """Steps of the recording."""
        return len(self.steps_ms) if self.recorded is None else self.recorded

    def steps_at_best(self) -> F64:
        """Return the steps scaled so that their mean is the best step time: the profile's spread at the run's level."""
        steps = np.asarray(self.steps_ms, dtype=np.float64)
        if self.best_ms is None or self.source == "profile" or len(steps) == 0 or steps.mean() <= 0:
            return steps
        return np.asarray(steps * (self.best_ms / steps.mean()))


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """Return the mean, None where one of them is not known or there are none."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None
