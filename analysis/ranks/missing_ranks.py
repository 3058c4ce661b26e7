"""The missing ranks of a job, and the sentence that reports them."""

from __future__ import annotations

from collections.abc import Iterable

MAX_NAMED_RANKS = 8  # Rank numbers in the sentence, so that it stays readable.


def missing_ranks(ranks: Iterable[int | None], world: int | None) -> list[int]:
    """Return those of the job's ``world`` ranks that are not in ``ranks``.

    The result is empty if a rank's number is unknown.
    """
    numbers = set(ranks)
    return [rank for rank in range(world or 0) if rank not in numbers] if numbers and None not in numbers else []


def missing_ranks_note(missing: list[int], world: int | None) -> str:
    """Return the sentence that reports the ``missing`` ranks of a job of ``world`` ranks."""
    names = ", ".join(map(str, missing[:MAX_NAMED_RANKS])) + (" …" if len(missing) > MAX_NAMED_RANKS else "")
    return (
        f"Rank {names} has no trace here."
        if len(missing) == 1
        else f"{len(missing):,} of {world:,} ranks ({names}) have no trace here."
    )
