"""Loops of new models with an engine, hooks and schedules.

Each has one common mistake that slows it down.
"""

from sawtooth.sample_traces.sets.eighth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
