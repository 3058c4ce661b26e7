"""Bringing files in: a queue of ingest jobs, the child process that reads them, and the recordings that ship."""
