"""Nsight Systems' SQLite export: a fixed set of its tables, read with limits, whatever version wrote them."""
