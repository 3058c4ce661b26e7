"""Telemetry files of every tool: a registry of formats, the table each is turned into, and our own sampler's sessions."""
