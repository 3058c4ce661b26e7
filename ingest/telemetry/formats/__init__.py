"""Telemetry formats of other tools, one file each, all read by header and never by position."""
