"""Loops with the habits that slow training down in practice."""

from sawtooth.sample_traces.sets.sixth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
