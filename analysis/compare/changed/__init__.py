"""Differences between two runs, how much of the gain each explains, and what was predicted for it."""
