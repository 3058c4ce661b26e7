"""Telemetry formats of other tools, one file each; all are read by header and never by position."""
