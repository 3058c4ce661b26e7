"""What somebody changed between two runs, as their recordings show it, what of the gain each change explains, and what was predicted of it."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "arguments": ("changed_arguments",),
        "differences": ("Difference", "Effect", "effects", "of_batch", "unfollowed"),
        "prediction": ("Prediction",),
        "products": (
            "OF_ONE_MODEL",
            "Weight",
            "alike",
            "batch_ratio",
            "other_layers",
            "products_in",
            "products_of",
            "weights_of",
        ),
        "programs": ("HARDLY_ANY", "shared_kernels"),
        "traits": ("ReadBack", "Trait", "traits_of"),
    },
)
