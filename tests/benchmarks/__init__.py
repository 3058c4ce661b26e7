"""Benchmarks: commands of their own, not part of the test run."""
