"""The sentences of a verdict's ``why``, which the JSON report contains. Times are ms, shares of 1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sawtooth.analysis.compare.significance.certainty import MIN_SURE_CHANGE
from sawtooth.analysis.compare.significance.measured_steps import MeasuredSteps
from sawtooth.analysis.metrics.step_sources import ESTIMATED
from sawtooth.analysis.units import percent, significant

POWER_MARGIN = 0.84  # Standard errors beyond the limit at which four of five recordings show a change.
TO_SHOW = (0.3, 0.15, 0.05)  # Changes for which the number of runs is stated.
HOSTS_VARY = (
    "The host limits these steps, and its own speed varies from run to run. So the change may not be the cause: record both sides again "
    "to be sure."
)
OTHER_MACHINES = (
    "The host limits these steps, and the runs were on different machines, whose hosts may differ by more than half. So the change may not be "
    "the cause: record both sides on one machine to be sure."
)
ONLY_MARKED = (
    "The marked steps of the two runs differ. But the host limits them, and its speed changes by as much within a run. So other steps of these runs "
    "may not differ."
)
SCALED = " (profiled steps scaled to the run's own)"
WIDENED = "The interval also includes the uncertainty of the step times themselves."
NO_LENGTH = "On one side at least half of the steps take the GPU no time, so no step time can be compared."
BY_MARKS = (
    "Both sides marked the run's steps. The interval combines the uncertainty of both step times with the 2 % by which two "
    "runs of one program differ."
)
BY_TIMES = "The interval combines the uncertainty of both step times with the 2 % by which two runs of one program differ."


def between_recordings(a: Sequence[MeasuredSteps], b: Sequence[MeasuredSteps]) -> str:
    """Return words that name the compared recordings, with a note if their profiled steps are scaled."""
    place = "between these two recordings" if len(a) == len(b) == 1 else f"between these {len(a)} and {len(b)} recordings"
    return f"{place}{SCALED}" if any(run.source in ESTIMATED and run.steps_ms for run in (*a, *b)) else place


def why_none(share: float, limit: float, *, includes_zero: bool) -> str:
    """Return why no difference is shown: the interval includes 0, or the change is normal variation."""
    if includes_zero:
        return "the 95 % interval of the change includes 0."
    return (
        f"a change of {percent(share, 1)} is within the {percent(limit, 1)} by which such recordings differ without any change."
    )


def runs_needed(spread: float, change: float) -> int:
    """Return how many runs per side are needed to show a change four times out of five.

    ``spread`` is the standard deviation of the runs of one side, and ``change`` the change, both as shares of a step.
    """
    return 1 + math.ceil(2 * ((1.96 + POWER_MARGIN) * spread / change) ** 2)


def more_runs(spread: float, runs: int) -> str:
    """Return the sentence on how many runs would show smaller changes; "" if ``runs`` per side are enough."""
    runs_by_change = {change: runs_needed(spread, change) for change in TO_SHOW}
    sentences = [
        f"{number} runs per side for a change of {percent(change)}"
        for change, number in runs_by_change.items()
        if number > runs
    ]
    return f" Runs of one side differ by {percent(spread, 1)}: record about {' or '.join(sentences)}." if sentences else ""


def could_have_seen(smallest: float) -> str:
    """Return the sentence that states the smallest change that the recordings could have shown."""
    if smallest >= 1:
        return f"The steps of one side differ so much that these recordings reliably show only changes by a factor of {significant(1 + smallest, 2)} or more."
    return (
        f"These recordings reliably show only changes of {percent(smallest, 1 if smallest < MIN_SURE_CHANGE else 0)} or more."
    )
