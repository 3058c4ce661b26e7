"""Loops of further families with an engine, hooks and schedules, and one habit of everyday life in each that slows it down."""

from sawtooth.sample_traces.sets.eighth.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
