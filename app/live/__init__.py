"""Sampler sessions while they grow: what they are, their series, their sentences, and how they become runs."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "finish": (
            "delete",
            "live_sessions",
        ),
        "gpu": ("LiveGpu",),
        "info": (
            "SessionInfo",
            "session_info",
        ),
        "series": ("thinned",),
        "sessions": ("LiveSession",),
        "words": (
            "NUMBERS",
            "RECENT_SECONDS",
            "about_session",
            "describe_rhythm",
            "sentence",
            "standing",
            "steps",
        ),
    },
)
