"""Loops with token-by-token generation, profiles of a single step, and evaluation between steps."""

from sawtooth.sample_traces.sets.fourth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
