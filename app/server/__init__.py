"""The server's process: start, access, logins, tokens, slow clients, and the sampler of this machine."""

from sawtooth.faces import lazy

__getattr__, __all__ = lazy(
    __name__,
    {
        "access": (
            "AccessMiddleware",
            "keep_peers",
        ),
        "bodies": (
            "BodyTooLongError",
            "whole_body",
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
            "command_to_show",
            "push_command",
            "push_token",
        ),
        "login": ("LINK", "TOKEN", "session_cookie_of"),
        "sessions": (
            "Listed",
            "Sessions",
            "sessions_of",
        ),
        "start": (
            "environment_for",
            "link_to",
            "serve",
            "token_of",
            "url_of",
        ),
    },
)
