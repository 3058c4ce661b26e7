"""Replay of a recorded run: a simulation whose parts can be changed, for what-if predictions."""
