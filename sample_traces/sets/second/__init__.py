"""Loops of other models, recorded after the analysis was written; nothing is fitted to them."""

from sawtooth.sample_traces.sets.second.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
