"""torch.profiler's JSON: blocks, events, columns, interned texts, and what the trace says of itself, on several cores."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {"merging": ("RankSource", "merged"), "reader": ("SOURCE", "sniff")},
)
