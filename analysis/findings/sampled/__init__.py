"""Findings from telemetry samples, with or without a profile, and all sampled GPUs side by side."""
