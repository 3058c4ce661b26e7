"""One sampled signal by itself, as arrays of times and values: when the loop trains, its mean then, and its rhythm."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "means": ("Mean", "mean_over", "weighted_mean"),
        "sawtooth": ("Sawtooth", "find_sawtooth", "renewal"),
        "steady": ("Steady", "find_steady", "profile_shadow", "weights_ns"),
    },
)
