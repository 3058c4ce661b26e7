"""Edits at the ends of their intervals: with the shortest or the longest time of their operations."""

from __future__ import annotations

from typing import Literal

from sawtooth.analysis.replay.edits import AsGraph, Edit, FasterHost, ScaledOps, TimedOps, WithoutHostCause, WithoutOps

KERNEL_TIME_ERROR_FACTORS = (0.8, 1.25)  # Assumed range of a new kernel time, as factors, if the edit has no interval.


def at_edge(edit: Edit, edge: Literal["least", "most"]) -> Edit:
    """Return ``edit`` with the shortest or the longest time that its operations may take."""
    slow = edge == "most"
    match edit:
        case ScaledOps(ops, factor, low, high):
            return ScaledOps(ops, (low, high)[slow] or factor * KERNEL_TIME_ERROR_FACTORS[slow])
        case TimedOps(ops, durations, low, high):
            return TimedOps(ops, (low, high)[slow] or tuple(round(ns * KERNEL_TIME_ERROR_FACTORS[slow]) for ns in durations))
        case WithoutHostCause(keep_at_least=least, keep_at_most=most):
            share = most if slow else least
            return edit if share is None else WithoutHostCause(edit.cause, share, edit.calls)
        case FasterHost(factor, calls, low, high):
            return FasterHost((low, high)[slow] or factor, calls)
        case WithoutOps(ops, host_may_stay=True) if slow:
            return WithoutOps(ops, host_too=False)
        case AsGraph(first_ops=(), outside_ops=outside) if slow:
            return AsGraph(waits_stay=True, outside_ops=outside)  # It may be impossible to move reads out of the step.
    return edit
