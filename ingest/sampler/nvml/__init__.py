"""Asking NVML: the calls and how often each is worth its cost, GPM's counters, what one GPU can tell, and what to do when it or the driver is lost.

The rest of the sampler knows a ``NvmlDriver`` and its readings, and no call of NVML.
"""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "driver": (
            "DriverLostError",
            "NvmlDriver",
            "Reading",
        ),
        "fields": (
            "COLUMNS",
            "SOURCES",
        ),
        "gpu": (
            "Gpu",
            "RETRY_FIRST_NS",
            "RETRY_LONGEST_NS",
        ),
    },
)
