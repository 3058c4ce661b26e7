"""Pushing samples to this server: the token that allows it and nothing else, and the command to type on the other host."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from sawtooth.app.settings import SHORTEST_TOKEN
from sawtooth.ingest.errors import UsageError

PREFIX = "/api/v1/live/"
FILE = "push_token"


def push_token(root: Path) -> str:
    """Return the write-only push token of a data folder, made at first use: it outlives the server, so that samplers go on after a restart.

    ``SAWTOOTH_PUSH_TOKEN`` takes its place. Raises UsageError for one that is too short.
    """
    if token := os.environ.get("SAWTOOTH_PUSH_TOKEN"):
        if len(token) < SHORTEST_TOKEN:
            raise UsageError(f"SAWTOOTH_PUSH_TOKEN has {len(token)} characters; take at least {SHORTEST_TOKEN}.")
        return token
    path = root / FILE
    for _ in range(2):
        try:
            kept = path.read_bytes().strip()
            if len(kept) >= SHORTEST_TOKEN and kept.isascii():
                return kept.decode("ascii")
            path.unlink()  # cut off while it was written, or damaged since
        except FileNotFoundError:
            pass
        root.mkdir(parents=True, exist_ok=True)
        made = root / f".{FILE}.{secrets.token_hex(4)}"
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(24))
        try:
            os.link(made, path)  # of two servers that start at once, the first one's token stays
        except OSError:
            if not path.exists():
                made.replace(path)
        made.unlink(missing_ok=True)
    return path.read_text(encoding="ascii").strip()


def push_command(address: str, token: str) -> str:
    """Return what to run beside the training job; ``address`` is this server's as the other host sees it."""
    return f"sawtooth sample --push {address.rstrip('/')} --token {token}"
