"""Interval of a change of step times, the verdict on it, and the sentences that explain it."""
