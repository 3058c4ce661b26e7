"""The token that allows pushing samples to this server, and the command for the other host."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from sawtooth.app.server.tokens import stored_token
from sawtooth.app.settings import MIN_TOKEN_LENGTH, Settings
from sawtooth.ingest.errors import UsageError

PREFIX = "/api/v1/live/"
FILE = "push_token"
MASK = "•" * 8  # Replaces the token, which must not appear on a shared screen.
VARIABLE = "SAWTOOTH_PUSH_TOKEN"


def push_token(root: Path) -> str:
    """Return the push token of a data folder, which only allows writing samples.

    Create the token if it is missing. It is stored, so that samplers can continue after a restart of the server. ``SAWTOOTH_PUSH_TOKEN`` overrides it. Raises
    UsageError if the variable's token is too short.
    """
    if token := os.environ.get(VARIABLE):
        if len(token) < MIN_TOKEN_LENGTH:
            raise UsageError(f"{VARIABLE} has {len(token)} characters. Use at least {MIN_TOKEN_LENGTH}.")
        return token
    return stored_token(root, FILE, "The push token")


def push_command(address: str, token: str | None) -> str:
    """Return the command that samples next to the training job.

    ``address`` is this server's address as the other host sees it. The token is in the environment, because other users of the
    host can read arguments. Without a token, the user must fill it in.
    """
    return f"{VARIABLE}={token or '…'} sawtooth sample --push {address.rstrip('/')}"


def command_to_show(address: str, options: Settings) -> str:
    """Return ``push_command`` for a page, on two lines, with MASK instead of the token.

    The token is left out if anyone may read the page.
    """
    command = push_command(address, MASK if options.token else None)
    return command.replace(" sawtooth ", " \\\n  sawtooth ", 1)


def command_to_print(address: str, root: Path) -> str:
    """Return ``push_command`` for the server's own output.

    The token is left out if the output is not a terminal, because other people may read stored logs. Raises UsageError if the
    token is too short, and OSError if it cannot be stored.
    """
    token = push_token(root)
    if sys.stdout.isatty():
        return push_command(address, token)
    if os.environ.get(VARIABLE):
        return push_command(address, None)
    return f"sawtooth sample --push {address.rstrip('/')} --token-file {shlex.quote(str(root / FILE))}"
