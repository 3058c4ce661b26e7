"""The server's process: start, access, tokens, slow clients, and the sampler of this machine."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "access": (
            "AccessMiddleware",
            "keep_peers",
        ),
        "flow": ("limit_scripts",),
        "local_sampler": (
            "bundled_telemetry",
            "gpus_here",
            "start_replay",
            "start_sampling",
        ),
        "process": (
            "jobs",
            "lifespan",
            "started_settings",
        ),
        "push": (
            "push_command",
            "push_token",
        ),
        "sessions": ("sessions_of",),
        "start": (
            "environment_for",
            "link_to",
            "serve",
            "url_of",
        ),
    },
)
