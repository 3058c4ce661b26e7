"""Ordinary trainings with known faults, for `sawtooth try` on a GPU (docs/evidence/accuracy.md)."""
