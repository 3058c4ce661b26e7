"""Which ranks hold a job up, by how much and why: by replaying the job without what they lose, or against many peers."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "blame": ("LEAST_SHARE", "PERSISTENT", "blame", "blame_recorded"),
        "lateness": ("NAMED_RANKS", "who", "why"),
        "outliers": ("FEWEST_ALIKE", "Trace", "outliers"),
        "own_time": ("OwnTime", "as_quiet_as_others", "own_time"),
        "reasons": ("MOST_REPLAYED", "with_reason"),
        "split": ("split_of",),
    },
)
