"""Readers of telemetry formats, one module each; columns are found by title, never by position."""
