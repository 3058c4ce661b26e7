"""Replay of a recorded run: a simulation whose parts can be changed, to predict the gains of changes."""
