"""Loops of models that are in neither earlier set, recorded on an H100."""

from sawtooth.sample_traces.sets.third.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
