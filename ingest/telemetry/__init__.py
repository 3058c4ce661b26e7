"""Telemetry files of every tool: a registry of formats, the table each is turned into, and our own sampler's sessions."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "registry": ("lines",),
        "session": (
            "ODD",
            "SessionClock",
            "SessionReader",
            "is_session_id",
            "is_time",
            "write_session_file",
        ),
    },
)
