"""Who owned each nanosecond of the steady window, and why nobody did: ledger, schedules, causes, phases and evidence."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "losses": ("Losses",),
    },
)
