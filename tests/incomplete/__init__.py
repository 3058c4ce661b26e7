"""Recordings that are damaged on purpose, and what their reports still claim: `python -m tests.incomplete --help`."""
