"""Comparisons of runs in words: what changed, why, how sure it is, and sweeps over a setting."""
