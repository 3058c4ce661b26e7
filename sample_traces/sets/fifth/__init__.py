"""Everyday loops, recorded on a slow host."""

from sawtooth.sample_traces.sets.fifth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
