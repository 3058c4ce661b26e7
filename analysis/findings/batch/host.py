"""Speed of a run's host, estimated from the difference between the run's step and the replayed step."""

from __future__ import annotations

import math

from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import FasterHost
from sawtooth.analysis.replay.whatif import GPU_LIMITED_STEP_DIFFERENCE, WhatIf

MAX_HOST_FACTOR = 3.0  # The search tries 1/3 to 3 times the host's time in the trace.
SEARCH_HALVINGS = 10  # Bisections of this range, for a precision of 0.2 %.
# Upper limit of the host's time ÷ its time in the replay, if the GPU hides the host's time. One of nine loops had 1.75.
MAX_HIDDEN_FACTOR = 1.8


def host_of_run(whatif: WhatIf, best: BestStepTime) -> tuple[FasterHost, ...]:
    """Return the host speed at which the replayed step equals the run's step.

    Empty if the replay gives the run's step without an edit, or with no host speed.
    """
    replayed_ms = whatif.step_ms()
    if (
        replayed_ms is None
        or best.ms is None
        or not best.represented
        or abs(best.ms / replayed_ms - 1) <= GPU_LIMITED_STEP_DIFFERENCE
    ):
        return ()
    run_ms = best.ms
    _, factor = turning_point(
        lambda factor: (whatif.step_ms((FasterHost(factor),)) or 0.0) < run_ms,
        1 / MAX_HOST_FACTOR,
        MAX_HOST_FACTOR,
        halvings=SEARCH_HALVINGS,
        geometric=True,
    )
    faster_host = (FasterHost(factor),)
    reached_ms = whatif.step_ms(faster_host)
    return faster_host if reached_ms is not None and abs(best.ms / reached_ms - 1) <= GPU_LIMITED_STEP_DIFFERENCE else ()


def hidden_host(whatif: WhatIf, best: BestStepTime) -> float:
    """Return the largest factor for the host's time that the GPU's work hides in the run's step."""
    assert best.ms is not None
    max_step_ms = max(best.ms, whatif.step_ms() or 0.0) * (1 + GPU_LIMITED_STEP_DIFFERENCE)

    def is_hidden(factor: float) -> bool:
        return (whatif.step_ms((FasterHost(factor),)) or math.inf) <= max_step_ms

    if is_hidden(MAX_HIDDEN_FACTOR):
        return MAX_HIDDEN_FACTOR
    return turning_point(is_hidden, 1.0, MAX_HIDDEN_FACTOR, halvings=SEARCH_HALVINGS, geometric=True)[0]
