"""Missing ranks of a job, and the sentence about them for runs of traces and of summaries."""

from __future__ import annotations

from collections.abc import Iterable

NAMED = 8  # names in the sentence; of more ranks, only the number is given


def absent(ranks: Iterable[int | None], world: int | None) -> list[int]:
    """Return which of the job's ``world`` ranks are not in ``ranks``.

    The result is empty if a rank's number is unknown.
    """
    numbers = set(ranks)
    return [rank for rank in range(world or 0) if rank not in numbers] if numbers and None not in numbers else []


def absent_note(missing: list[int], world: int | None) -> str:
    """Return the sentence about the ``missing`` of ``world`` ranks."""
    names = ", ".join(map(str, missing[:NAMED])) + (" …" if len(missing) > NAMED else "")
    return (
        f"Rank {names} has no trace here."
        if len(missing) == 1
        else f"{len(missing):,} of {world:,} ranks ({names}) have no trace here."
    )
