"""Comparison of two or more runs: what changed, how certain it is, gates, and sweeps over a setting."""
