"""Checks whether a recording is complete and possible, one module per kind of check, with effects."""
