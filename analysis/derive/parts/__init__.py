"""A recording a stretch of steps at a time: what is derived of millions of events never lies in memory as a whole."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "part": ("Part", "whole"),
        "cuts": ("parts_of",),
        "work": ("Work", "work_of"),
        "facts": ("added", "facts_of", "in_counted_steps"),
    },
)
