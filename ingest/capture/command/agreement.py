"""All ranks of a host profile the same steps: the first says in a file from which on, and how many. Standard library only."""

from __future__ import annotations

from pathlib import Path

from .loop_times import Extent

RANKS_LEAD = 20  # steps between rank 0's decision and the profile: ranks are a step or two apart, and look every ten


def agreed(folder: Path, index: int, mine: Extent | None) -> tuple[int, Extent] | None:
    """Return the step of the loop that all profile from, and what their profile takes; None while it is not known.

    ``mine`` is what the first rank chose at step ``index``, where a round begins; None of the others, and as long as it chose nothing.
    """
    note = folder / "profile_at"
    if mine is not None:
        part = note.with_suffix(".part")
        rounds = -(-RANKS_LEAD // mine.round)
        part.write_text(f"{index + rounds * mine.round} {mine.steps} {mine.round}")
        part.replace(note)
    try:
        begin, steps, of_round = map(int, note.read_text().split())
    except (OSError, ValueError):
        return None
    return begin, Extent(steps, of_round)
