"""Telemetry formats of other tools, one module each; columns are found by title, never by position."""
