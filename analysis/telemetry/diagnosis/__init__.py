"""Diagnosis by telemetry alone: throttling, unlike GPUs, trends, dips, idle time, links, errors."""
