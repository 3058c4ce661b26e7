"""What somebody changed between two runs, as their recordings show it, what of the gain each change explains, and what was predicted of it."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "differences": ("Difference", "Effect"),
        "prediction": ("Prediction",),
        "products": ("alike", "products_in", "products_of"),
        "traits": ("Trait", "traits_of"),
    },
)
