"""The library that reads the store: one restricted DuckDB per process, shared by pages and API."""

from __future__ import annotations

from functools import lru_cache

from sawtooth.analysis.store.library import Library
from sawtooth.app.settings import settings
from sawtooth.ingest.schema import DataFolder


def library() -> Library:
    """Return this server's library."""
    return library_of(settings().data)


@lru_cache(maxsize=8)
def library_of(folder: DataFolder) -> Library:
    """Return the library of ``folder``, opened once."""
    return Library(folder)
