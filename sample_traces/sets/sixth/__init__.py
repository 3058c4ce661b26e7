"""Loops with common mistakes that slow training down."""

from sawtooth.sample_traces.sets.sixth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
