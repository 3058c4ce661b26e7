"""Tokens that a data folder stores for its server, with check digits that show damage."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from pathlib import Path

from sawtooth.app.settings import MIN_TOKEN_LENGTH

log = logging.getLogger("sawtooth")
VIEWERS = "token"
CHECK_DIGITS = 8  # Digits of a SHA-256. They show a flipped bit, and do not help in guessing the token.


def stored_token(root: Path, name: str, label: str) -> str:
    """Return the token in the file ``name`` of a data folder; create it if it is missing.

    A file contains the token and its check digits. A single word is accepted too, because older versions and users write such
    files. ``label`` names the token in the log if the file is damaged.
    """
    path = root / name
    for _ in range(2):
        if token := _read(path, label):
            return token
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = root / f".{name}.{secrets.token_hex(4)}"
        fresh = secrets.token_urlsafe(24)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{fresh}  {_check(fresh)}\n")  # If one of the two spaces is damaged, there are still two words.
        try:
            os.link(draft, path)  # If two servers start at once, both use the token of the first server.
        except OSError:
            if not path.exists():
                draft.replace(path)
        draft.unlink(missing_ok=True)
    return _read(path, label) or fresh


def _read(path: Path, label: str) -> str | None:
    """Return the token in a file; a damaged file is removed."""
    try:
        words = path.read_bytes().split()
    except FileNotFoundError:
        return None
    token = words[0].decode("ascii", "replace") if words else ""
    is_intact = len(words) == 1 or (len(words) == 2 and words[1] == _check(token).encode())
    if is_intact and token.isascii() and token.isprintable() and len(token) >= MIN_TOKEN_LENGTH:
        return token
    log.warning("%s in the data folder's file %r was damaged and is replaced. The old token is no longer valid.", label, path.name)  # fmt: skip
    path.unlink(missing_ok=True)
    return None


def _check(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()[:CHECK_DIGITS]
