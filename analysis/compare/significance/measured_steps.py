"""Measurements of one run for a comparison: its step time with its interval, and its steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from sawtooth.analysis.compare.significance.bootstrap import F64
from sawtooth.analysis.metrics.step_sources import StepSource


@dataclass(frozen=True)
class MeasuredSteps:
    """The step time of one run with its interval and source, and its profiled device steps in order.

    Times are ms. ``source`` is user, marks, telemetry, estimate or profile. ``low_ms`` to ``high_ms`` is the 90 %
    interval of the best step time. Both are None if it is not known. Only ``high_ms`` is None if nothing bounds it from
    above.

    ``recordings`` identify what was measured. ``recorded`` is the number of all steps of the recording, including the first
    of each cycle, which ``steps_ms`` lacks. None means as many as ``steps_ms``. ``host_bound`` says that the GPU
    does not limit the step. ``on_host`` says that a trace shows work on the host and no GPU. ``works_ms`` is how long
    the GPU works in a step, None if it is not known. No step is shorter than that. ``profiled_ms`` is the mean profiled
    step. ``kernels_ms`` is how long a step's kernels run. It is None for a job of several GPUs, whose kernels wait for
    each other. ``before_high_ms`` is the upper end of the interval of step marks before the profile, None without them.
    ``marked_ms`` is the interval of the marked steps alone, if ``low_ms`` and ``high_ms`` also include the drift of the
    host. It is None otherwise. ``machine`` identifies a machine from its start to its next restart, None if it is not known.
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
    profiled_ms: float | None = None
    kernels_ms: float | None = None
    before_high_ms: float | None = None
    marked_ms: tuple[float, float] | None = None
    machine: str | None = None

    @property
    def longest_ms(self) -> float | None:
        """The upper end of the step time's interval, or the best step time without an interval.

        None if nothing bounds it from above.
        """
        return self.high_ms if self.low_ms is not None else self.best_ms

    @property
    def length(self) -> int:
        """Steps of the recording."""
        return len(self.steps_ms) if self.recorded is None else self.recorded

    def steps_at_best(self) -> F64:
        """Return the steps scaled so that their mean is the best step time."""
        steps = np.asarray(self.steps_ms, dtype=np.float64)
        if self.best_ms is None or self.source == "profile" or len(steps) == 0 or steps.mean() <= 0:
            return steps
        return np.asarray(steps * (self.best_ms / steps.mean()))


def on_other_machines(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> bool:
    """Return whether the machines of all runs are known and no machine ran both sides."""
    machines_a, machines_b = ({run.machine for run in side} for side in (a, b))
    return None not in machines_a | machines_b and not machines_a & machines_b


def scale(run: MeasuredSteps, share: float) -> MeasuredSteps:
    """Return the measurements with every time multiplied by ``share``, a share of a step's work."""

    def part(ms: float | None) -> float | None:
        return None if ms is None else ms * share

    return replace(
        run,
        steps_ms=tuple(ms * share for ms in run.steps_ms),
        best_ms=part(run.best_ms),
        low_ms=part(run.low_ms),
        high_ms=part(run.high_ms),
        works_ms=part(run.works_ms),
        profiled_ms=part(run.profiled_ms),
        kernels_ms=part(run.kernels_ms),
        before_high_ms=part(run.before_high_ms),
        marked_ms=None if run.marked_ms is None else (run.marked_ms[0] * share, run.marked_ms[1] * share),
    )


def before_profile(
    a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]
) -> tuple[Sequence[MeasuredSteps], Sequence[MeasuredSteps]]:
    """Return both sides with the intervals of steps before the profile, if all runs marked them.

    Steps after the profile are slower while a profiler stays attached. This is not an effect of the change. Intervals that
    include the drift of a host stay as they are.
    """
    if any(run.before_high_ms is None for run in (*a, *b)):
        return a, b
    steps_a, steps_b = (
        tuple(replace(run, high_ms=run.before_high_ms) if run.marked_ms is None else run for run in side) for side in (a, b)
    )
    return steps_a, steps_b


def without_drift(
    a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]
) -> tuple[Sequence[MeasuredSteps], Sequence[MeasuredSteps]] | None:
    """Return both sides with the intervals of the marked steps alone, without the drift of a host.

    None if they are the same, or if a step time is not from marks.
    """
    runs = (*a, *b)
    if not any(run.marked_ms for run in runs) or any(run.source != "marks" for run in runs):
        return None
    steps_a, steps_b = (
        tuple(
            replace(run, low_ms=run.marked_ms[0], high_ms=run.marked_ms[1], marked_ms=None) if run.marked_ms else run
            for run in side
        )
        for side in (a, b)
    )
    return before_profile(steps_a, steps_b)


def mean_of_all(values: Sequence[float | None]) -> float | None:
    """Return the mean, or None if a value is not known or there are no values."""
    known_values = [value for value in values if value is not None]
    return math.fsum(known_values) / len(known_values) if known_values and len(known_values) == len(values) else None
