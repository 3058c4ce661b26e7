"""Agreement of a host's ranks on the steps to profile, through files in the run's folder.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

RANKS_LEAD = 20  # Steps from rank 0's decision to the profile: ranks are one or two steps apart and check every ten steps.
START_FILE = "profile_at"
END_FILE = "profile_until"


def agreed_start(folder: Path, index: int, mine: tuple[int, int] | None) -> tuple[int, int, int] | None:
    """Return the step at which all ranks start to profile, and the profile's extent.

    None while they are not known. An extent is the number of steps to profile and the number of steps in a round. ``mine`` is the extent that the first rank
    chose at step ``index``, where a round begins. It is None for other ranks and before the choice.
    """
    file = folder / START_FILE
    if mine is not None:
        steps, in_round = mine
        part = file.with_suffix(".part")
        rounds = -(-RANKS_LEAD // in_round)
        part.write_text(f"{index + rounds * in_round} {steps} {in_round}")
        part.replace(file)
    try:
        begin, steps, in_round = map(int, file.read_text().split())
    except (OSError, ValueError):
        return None
    return begin, steps, in_round


def agreed_end(folder: Path, wish: int | None) -> int | None:
    """Return the step at which all ranks end the profile early; None if no rank needs that.

    ``wish`` is the step at which this rank must end. If several ranks write a wish, the first one counts.
    """
    file = folder / END_FILE
    if wish is not None:
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(str(wish))
        with contextlib.suppress(FileExistsError):
            os.link(part, file)
        part.unlink()
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
