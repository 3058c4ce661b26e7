"""Speed of a run's host, estimated from the difference between the run's step and its replay.

Another batch size changes the GPU's work, which may make this difference visible.
"""

from __future__ import annotations

import math

from sawtooth.analysis.metrics.step_time import BestStepTime
from sawtooth.analysis.replay.bisection import turning_point
from sawtooth.analysis.replay.edits import FasterHost
from sawtooth.analysis.replay.whatif import RUNS_DIFFER, WhatIf

MAX_HOST_SPEED = 3.0  # The search covers host speeds from a third to three times the speed in the trace.
SEARCH_HALVINGS = 10  # Steps of the bisection of that range; they give a precision of 0.2 %.
# Upper limit of the host's time ÷ its time in the replay, while the GPU hides it. One of nine loops had 1.75.
SLOWEST_HOST = 1.8


def host_of_run(whatif: WhatIf, best: BestStepTime) -> tuple[FasterHost, ...]:
    """Return the host speed at which the replayed step equals the run's step.

    Empty if the replay already gives that step, or if no host speed does.
    """
    now = whatif.step_ms()
    if now is None or best.ms is None or not best.represented or abs(best.ms / now - 1) <= RUNS_DIFFER:
        return ()
    run_ms = best.ms
    _, factor = turning_point(
        lambda factor: (whatif.step_ms((FasterHost(factor),)) or 0.0) < run_ms,
        1 / MAX_HOST_SPEED,
        MAX_HOST_SPEED,
        halvings=SEARCH_HALVINGS,
        geometric=True,
    )
    faster_host = (FasterHost(factor),)
    reached = whatif.step_ms(faster_host)
    return faster_host if reached is not None and abs(best.ms / reached - 1) <= RUNS_DIFFER else ()


def hidden_host(whatif: WhatIf, best: BestStepTime) -> float:
    """Return the largest factor for the host's time that the GPU's work hides in the run's step."""
    assert best.ms is not None
    longest = max(best.ms, whatif.step_ms() or 0.0) * (1 + RUNS_DIFFER)

    def hidden(factor: float) -> bool:
        return (whatif.step_ms((FasterHost(factor),)) or math.inf) <= longest

    if hidden(SLOWEST_HOST):
        return SLOWEST_HOST
    return turning_point(hidden, 1.0, SLOWEST_HOST, halvings=SEARCH_HALVINGS, geometric=True)[0]
