"""Distinguish the layers of one pass from the iterations of a loop, by where their backward work runs.

An iteration contains the backward pass of its own forward pass. A period may also begin between the two passes. Then the backward
pass of each period lies in the next period. The backward pass of a model runs through the layers in reverse order, after the
forward pass of the last layer.
"""

from __future__ import annotations

import numpy as np

from sawtooth.analysis.derive.events import I64, TraceEvents

MIN_LINKS = 10  # Fewer backward operators with a known forward operator are no evidence.
# Share of these operators that run in the same or the next period. In a loop nearly all operators do, in a pass only the
# operators of two layers.
ITERATIONS_FROM = 0.5


def are_layers(events: TraceEvents, starts: I64) -> bool:
    """Return whether the periods that begin at ``starts`` are layers: their backward work runs later."""
    ops = events.ops
    numbered = (ops.sequence >= 0) & ~ops.annotation
    backward, forward = (
        np.flatnonzero(numbered & (ops.forward_thread > 0)),
        np.flatnonzero(numbered & (ops.forward_thread <= 0)),
    )
    number, first = np.unique(ops.sequence[forward], return_index=True)
    position = np.searchsorted(number, ops.sequence[backward])
    has_forward = position < len(number)
    has_forward[has_forward] = number[position[has_forward]] == ops.sequence[backward[has_forward]]
    if has_forward.sum() < MIN_LINKS:
        return False
    forward_period, backward_period = (
        np.searchsorted(starts, ops.start[rows], side="right")
        for rows in (forward[first[position[has_forward]]], backward[has_forward])
    )
    distance = backward_period - forward_period
    return bool(((distance == 0) | (distance == 1)).mean() < ITERATIONS_FROM)
