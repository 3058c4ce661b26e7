"""Nsight Systems' SQLite export: a fixed set of its tables, read with limits, whatever version wrote them."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {"reader": ("SOURCE",)},
)
