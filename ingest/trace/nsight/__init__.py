"""Nsight Systems' SQLite export: a fixed set of its tables, read with limits, for all export versions."""
