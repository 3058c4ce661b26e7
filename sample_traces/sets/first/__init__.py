"""Recordings with which the analysis was developed.

Each has one planted problem or none. A pair differs in one change.
"""

from sawtooth.sample_traces.sets.first.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
