"""What somebody changed between two runs, as their recordings show it, what of the gain each change explains, and what was predicted of it."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "differences": ("Difference", "Effect", "effects"),
        "prediction": ("Prediction",),
        "products": ("OF_ONE_MODEL", "alike", "products_in", "products_of"),
        "traits": ("READ_BACK", "Trait", "traits_of"),
    },
)
