"""Queries that rules run on a recording, one module per subject (calls, copies, attention and so on)."""
