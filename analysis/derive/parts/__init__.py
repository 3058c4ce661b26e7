"""Derivation of a recording in parts of several steps, which limits the memory needed."""
