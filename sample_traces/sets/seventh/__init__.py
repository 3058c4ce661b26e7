"""Loops as people write them, with meters, schedules and averages, and habits that slow them down."""

from sawtooth.sample_traces.sets.seventh.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
