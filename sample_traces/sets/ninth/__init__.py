"""Loops of new models, each a complete training script.

Each has one common mistake that slows it down.
"""

from sawtooth.sample_traces.sets.ninth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
