"""The list of runs: what a card says of each, and finding and ordering them."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "card": (
            "Card",
            "READINGS",
            "card_of",
            "is_large",
            "kept_card",
        ),
        "listing": ("listed",),
    },
)
