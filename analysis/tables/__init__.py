"""The tables behind the screens, per step: kernels, operators, modules, efficiency, memory, waits, and the timeline of a view."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "called_from": ("called_from",),
        "memory": ("MemoryUse",),
        "timeline": ("InView", "Lane", "Span"),
        "timeline_details": ("Details",),
        "timeline_tiles": ("Tile",),
    },
)
