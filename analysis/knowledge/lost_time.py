"""The key of a piece of lost time: its cause, or its owner if no recorded cause explains it."""

from __future__ import annotations

from typing import TypeGuard

UNATTRIBUTED = "unattributed"  # The ledger's cause of time that nothing recorded explains.


def is_explained(cause: str | None) -> TypeGuard[str]:
    """Return whether a cause explains lost time.

    If so, pieces with this cause belong together whatever their owner.
    """
    return cause is not None and cause != UNATTRIBUTED


def known_by(owner: str, cause: str | None) -> str:
    """Return the key of the cause, or the owner of copies and communication without a cause.

    A copy whose cause is missing is still a copy.
    """
    return cause if is_explained(cause) or (cause is not None and owner == "idle") else owner
