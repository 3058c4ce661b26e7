"""Readings, causes and findings computed from recordings; never writes a recording, never draws."""
