"""Readers of telemetry formats, one module each. They find columns by title, never by position."""
