"""Recordings that the analysis was written with: each plants one trouble or none, and a pair changes one thing only."""

from sawtooth.sample_traces.sets.first.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
