"""Ingest: a queue of jobs, the child process that reads files, and the bundled recordings."""
