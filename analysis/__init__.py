"""Compute metrics, causes and findings from recordings, without changing recordings or drawing."""
