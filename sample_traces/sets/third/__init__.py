"""Loops of models of neither set before, recorded on an H100."""

from sawtooth.sample_traces.sets.third.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
