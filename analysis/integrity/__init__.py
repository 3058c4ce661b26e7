"""Checks of a recording for missing or impossible data, with their effects on metrics and rules."""
