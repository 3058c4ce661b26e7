"""Tokens that a data folder keeps for its server: made at first use, private to their owner, and told when they are damaged."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from pathlib import Path

from sawtooth.app.settings import SHORTEST_TOKEN

log = logging.getLogger("sawtooth")
VIEWERS = "token"
CHECK_DIGITS = 8  # of a SHA-256: enough to tell a flipped bit, no help to guess the token


def kept_token(root: Path, name: str, what: str) -> str:
    """Return the token in the file ``name`` of a data folder, made where there is none; ``what`` it is goes to the log where it was damaged.

    A file holds the token and its check digits. One word alone is a token too: files of older versions, and tokens that people write there.
    """
    path = root / name
    for _ in range(2):
        if token := _read(path, what):
            return token
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = root / f".{name}.{secrets.token_hex(4)}"
        fresh = secrets.token_urlsafe(24)
        with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{fresh}  {_check(fresh)}\n")  # two spaces: a flipped bit in one leaves two words
        try:
            os.link(made, path)  # of two servers that start at once, the first one's token stays
        except OSError:
            if not path.exists():
                made.replace(path)
        made.unlink(missing_ok=True)
    return _read(path, what) or fresh


def _read(path: Path, what: str) -> str | None:
    """Return a file's token; a damaged file goes."""
    try:
        words = path.read_bytes().split()
    except FileNotFoundError:
        return None
    token = words[0].decode("ascii", "replace") if words else ""
    checks = len(words) == 1 or (len(words) == 2 and words[1] == _check(token).encode())
    if checks and token.isascii() and token.isprintable() and len(token) >= SHORTEST_TOKEN:
        return token
    log.warning("%s in the data folder's file %r was damaged: a new one takes its place, and the old one opens nothing.", what, path.name)  # fmt: skip
    path.unlink(missing_ok=True)
    return None


def _check(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:CHECK_DIGITS]
