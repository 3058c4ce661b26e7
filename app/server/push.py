"""Pushing samples to this server: the token that allows it and nothing else, and the command to type on the other host."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from sawtooth.app.server.tokens import kept_token
from sawtooth.app.settings import SHORTEST_TOKEN, Settings
from sawtooth.ingest.errors import UsageError

PREFIX = "/api/v1/live/"
FILE = "push_token"
MASK = "•" * 8  # for the token, which a shared screen must not show
VARIABLE = "SAWTOOTH_PUSH_TOKEN"


def push_token(root: Path) -> str:
    """Return the write-only push token of a data folder, made at first use: it outlives the server, so that samplers go on after a restart.

    ``SAWTOOTH_PUSH_TOKEN`` takes its place. Raises UsageError for one that is too short.
    """
    if token := os.environ.get(VARIABLE):
        if len(token) < SHORTEST_TOKEN:
            raise UsageError(f"{VARIABLE} has {len(token)} characters; take at least {SHORTEST_TOKEN}.")
        return token
    return kept_token(root, FILE, "The push token")


def push_command(address: str, token: str | None) -> str:
    """Return what to run beside the training job; ``address`` is this server's as the other host sees it.

    The token is handed over in the environment, which other users of that host cannot read; arguments they can. None leaves it to be filled in.
    """
    return f"{VARIABLE}={token or '…'} sawtooth sample --push {address.rstrip('/')}"


def command_to_show(address: str, options: Settings) -> str:
    """Return ``push_command`` for a page, on two lines, since one breaks within a word there: with MASK in place of the token, and without it where anybody may read the page."""
    command = push_command(address, MASK if options.token else None)
    return command.replace(" sawtooth ", " \\\n  sawtooth ", 1)


def command_to_print(address: str, root: Path) -> str:
    """Return ``push_command`` for this server's own output: without the token where that is no terminal, as logs are kept and read by others.

    Raises UsageError for a token that is too short, OSError where none can be kept.
    """
    token = push_token(root)
    if sys.stdout.isatty():
        return push_command(address, token)
    if os.environ.get(VARIABLE):
        return push_command(address, None)
    return f"sawtooth sample --push {address.rstrip('/')} --token-file {shlex.quote(str(root / FILE))}"
