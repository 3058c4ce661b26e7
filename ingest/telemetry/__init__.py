"""Telemetry files of all tools: a registry of formats, their common table, and sampler sessions."""
