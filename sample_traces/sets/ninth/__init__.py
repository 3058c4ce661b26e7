"""Loops of further families, each a training script from top to bottom, with one habit of everyday life in each that slows it down."""

from sawtooth.sample_traces.sets.ninth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
