"""Agreement of a host's ranks on the steps to profile, through a file that the first rank writes.

Standard library only.
"""

from __future__ import annotations

from pathlib import Path

from .loop_times import Extent

RANKS_LEAD = 20  # Steps from rank 0's decision to the profile: ranks are one or two steps apart and check every ten steps.


def agreed(folder: Path, index: int, mine: Extent | None) -> tuple[int, Extent] | None:
    """Return the step at which all ranks start to profile, and the extent; None while it is not known.

    ``mine`` is the extent that the first rank chose at step ``index``, where a round begins. It is None for other ranks and before the choice.
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
