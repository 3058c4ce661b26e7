"""Damage recordings on purpose and check their reports: `python -m tests.incomplete --help`."""
