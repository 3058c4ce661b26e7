"""Typical user loops with meters, schedules and averages, and with habits that slow them down."""

from sawtooth.sample_traces.sets.seventh.scenarios import SCENARIOS

__all__ = ["SCENARIOS"]
