"""What a piece of lost time is known by: its cause, or where nothing recorded explains it, who owned it meanwhile."""

from __future__ import annotations

from typing import TypeGuard

UNATTRIBUTED = "unattributed"  # the ledger's cause of what nothing recorded explains


def is_explained(cause: str | None) -> TypeGuard[str]:
    """Tell whether a cause says why time was lost: then it is one, whoever owned the time meanwhile."""
    return cause is not None and cause != UNATTRIBUTED


def known_by(owner: str, cause: str | None) -> str:
    """Return the key of the cause, or of copies and communication without one of their owner: a copy whose cause is missing is still a copy."""
    return cause if is_explained(cause) or (cause is not None and owner == "idle") else owner
