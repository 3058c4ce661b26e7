"""Tokens one by one, captures of one step, evaluation between steps."""

from sawtooth.sample_traces.sets.fourth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
