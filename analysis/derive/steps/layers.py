"""Tell the layers of one pass from the iterations of a loop, by where their backward work runs.

An iteration contains the backward pass of its own forward pass. A period may begin between both; then the backward work of each
lies in the next one. The layers of a model go backward in reverse order, after the last of them went forward.
"""

from __future__ import annotations

import numpy as np

from sawtooth.analysis.derive.events import I64, TraceEvents

FEWEST_LINKS = 10  # backward operators with a known forward operator; fewer are no evidence
ITERATIONS_FROM = 0.5  # share of them in the same or the next period: nearly all in a loop, at most two layers in a pass


def are_layers(events: TraceEvents, starts: I64) -> bool:
    """Return whether the periods from ``starts`` on are layers: their backward work is far behind."""
    ops = events.ops
    numbered = (ops.sequence >= 0) & ~ops.annotation
    backward, forward = (
        np.flatnonzero(numbered & (ops.forward_thread > 0)),
        np.flatnonzero(numbered & (ops.forward_thread <= 0)),
    )
    number, first = np.unique(ops.sequence[forward], return_index=True)
    place = np.searchsorted(number, ops.sequence[backward])
    known = place < len(number)
    known[known] = number[place[known]] == ops.sequence[backward[known]]
    if known.sum() < FEWEST_LINKS:
        return False
    went, came = (
        np.searchsorted(starts, ops.start[rows], side="right") for rows in (forward[first[place[known]]], backward[known])
    )
    apart = came - went
    return bool(((apart == 0) | (apart == 1)).mean() < ITERATIONS_FROM)
