"""Meaning: readings, causes and findings computed from recordings. Never writes a recording, never draws."""
