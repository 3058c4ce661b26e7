"""By how much a rank's own time exceeds that of its peers, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.knowledge.causes import CAUSE_OF
from sawtooth.analysis.quantiles import MAD_TO_SIGMA
from sawtooth.analysis.ranks.stragglers.own_time import F64, HOST_ERROR, LONG_GAP_NS, WORK, OwnTime, OwnTimePart

OUTLIER_MADS = 6.0  # median absolute deviations above the median; of 1,000 equal ranks, none is above
FEWEST_TO_SCATTER, PERSISTENT = 4, 0.5  # peers needed to measure their spread; share of steps in which an excess must occur
RECURS = 2  # least number of steps with a stall; a loader that stalls every fourth step does it twice in a short profile
STALL = 0.5  # a stall is at least this share of least_ns × steps, so two stalls raise the mean by least_ns
HIDES, HIDDEN_TIMES = 0.7, 3.0  # idle peers wait for a rank if idle for this share of its loss, and this many times its own


def longer_ns(cause: str, mine: OwnTime, others: Sequence[OwnTime]) -> float:
    """Return by how much the long gaps of ``cause`` exceed those of the peers, in mean ns per step.

    Gaps count even while the GPU has work, because profiling changes where it runs out. It is 0 within the error.
    """
    own = mine.long_gaps_ns.get(cause, 0.0)
    excess = own - float(np.median([other.long_gaps_ns.get(cause, 0.0) for other in others]))
    return excess if excess > (HOST_ERROR * own if CAUSE_OF[cause].slowed else 0.0) else 0.0


def longer_by_gap_ns(cause: str, mine: OwnTime, others: Sequence[OwnTime], least_ns: float) -> tuple[float, bool]:
    """Return by how much single long gaps exceed those of the peers, and if one stall is all.

    Times are means in ns per step. Gaps are compared one by one, longest first. It is 0 if the excess is below ``least_ns`` in
    most counted steps and no stall recurs. The profiler's cost is not used, because it is known for a step and not for a gap. A host that is slower everywhere
    also has longer gaps, so those of the peers are first scaled to its speed.
    """
    common = [step for step in mine.steps if all(step in other.steps for other in others)]
    pauses = [pause for pause in mine.longest_ns if pause[0] == cause]
    slowdown = max(mine.short_ns / max(float(np.median([other.short_ns for other in others])), 1.0), 1.0)
    excess = np.zeros(len(common))
    for (i, step), pause in product(enumerate(common), pauses):
        gaps = mine.longest_ns[pause][mine.steps.index(step)]
        theirs = np.zeros((len(others), len(gaps)))
        for row, other in zip(theirs, others, strict=True):
            other_gaps = other.longest_ns[pause][other.steps.index(step)][: len(gaps)] if pause in other.longest_ns else ()
            row[: len(other_gaps)] = other_gaps
        usual = slowdown * np.maximum(np.median(theirs, axis=0), LONG_GAP_NS)
        excess[i] += np.where(gaps > (1 + HOST_ERROR) * usual, gaps - usual, 0.0).sum()
    long = excess >= STALL * len(excess) * least_ns
    enough, once = _is_enough(long, mine, excess)
    persists = len(excess) > 0 and (excess >= least_ns).mean() > PERSISTENT
    return (float(excess.mean()) if enough or persists else 0.0), once


def excess_of(part: OwnTimePart, mine: OwnTime, others: Sequence[OwnTime], least_ns: float) -> tuple[float | None, bool]:
    """Return by how much ``part`` exceeds that of the peers, and if one stall is all.

    The mean in ns per step is None if it is too rare. It must occur in most counted steps. For time that the profiler does not
    affect, ``least_ns`` in several steps and in the mean of all of them is enough.
    """
    theirs = [_like(part, other) for other in others]
    common = [step for step in mine.steps if all(step in other.steps for other in others)]
    if not common:
        return None, False
    at = [mine.steps.index(step) for step in common]
    table = np.array([[t.ns[o.steps.index(s)] if t else 0.0 for s in common] for t, o in zip(theirs, others, strict=True)])
    errors = np.array(
        [[t.error_ns[o.steps.index(s)] if t else 0.0 for s in common] for t, o in zip(theirs, others, strict=True)]
    )
    usual = np.median(table, axis=0)
    excess: F64 = part.ns[at] - usual
    limit = np.median(errors, axis=0) if part.cause == WORK else part.error_ns[at] + np.median(errors, axis=0)
    if len(others) >= FEWEST_TO_SCATTER:
        limit = np.maximum(limit, OUTLIER_MADS * MAD_TO_SIGMA * np.median(np.abs(table - usual), axis=0))
    if part.cause != WORK and not CAUSE_OF[part.cause].slowed:
        long = excess > np.maximum(limit, least_ns)
        enough, once = _is_enough(long, mine, excess)
        return (
            float(excess.mean()) if (enough or (len(common) == 1 and long.all())) and excess.mean() >= least_ns else None
        ), once
    exceeds = excess > limit
    return (float(np.maximum(excess, 0.0).mean()) if exceeds.any() and exceeds.mean() > PERSISTENT else None), False


def _is_enough(long: NDArray[np.bool_], mine: OwnTime, excess: F64) -> tuple[bool, bool]:
    """Return whether the ``long`` steps are more than chance, and whether they are a single one.

    A single one is chance, unless the rank's marks show steps outside the profile that are longer by about as much.
    """
    once = bool(long.sum() == 1) and mine.recurs(float(excess[long][0]))
    return once or bool(long.sum() >= RECURS), once


def _like(part: OwnTimePart, other: OwnTime) -> OwnTimePart | None:
    return next((p for p in other.parts if (p.cause, p.long) == (part.cause, part.long)), None)


def hide_waiting(mine: OwnTime, others: Sequence[OwnTime], lost_ns: float) -> bool:
    """Return whether the others' hosts wait for ``mine`` without a call that shows it.

    ``lost_ns`` is the time that ``mine`` loses per step.
    """
    hidden = float(np.median([other.hidden_ns for other in others]))
    return hidden >= HIDDEN_TIMES * mine.hidden_ns and hidden - mine.hidden_ns >= HIDES * lost_ns
