"""Agreement of a host's ranks on the steps to profile, through files in the run's folder.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from math import ceil
from pathlib import Path

# The other ranks check for rank 0's decision after this number of steps or this time. A check takes 10 µs, so it is not done at each step.
CHECK_STEPS = 10
CHECK_NS = 50_000_000
MAX_RANK_LEAD = 10  # A rank is ahead of rank 0 by at most this many steps. Usually it is one or two.
START_FILE = "profile_at"
END_FILE = "profile_until"


def lead_steps(step_ns: float) -> int:
    """Return the number of steps from rank 0's decision to the profile; a step takes ``step_ns``.

    In these steps, every rank reads the decision.
    """
    check_steps = ceil(2 * CHECK_NS / step_ns) if step_ns > 0 else CHECK_STEPS  # The time is doubled because step times vary.
    return MAX_RANK_LEAD + min(check_steps, CHECK_STEPS)


class DecisionChecks:
    """The times at which a rank checks for rank 0's decision."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns, self._last_ns = clock_ns, 0

    def is_due(self, index: int) -> bool:
        """Return whether a check is due after step ``index``."""
        now_ns = self._clock_ns()
        due = index % CHECK_STEPS == 0 or now_ns - self._last_ns >= CHECK_NS
        self._last_ns = now_ns if due else self._last_ns
        return due


def agreed_start(folder: Path, index: int, choice: tuple[int, int, float] | None) -> tuple[int, int, int] | None:
    """Return the first step to profile, the number of steps to profile, and the steps per round.

    The result is None until rank 0 has chosen. ``choice`` is rank 0's choice after step ``index``, the first step of a round: the number of
    steps to profile, the steps per round, and the step time in ns. It is None on other ranks, and on rank 0 at all other steps.
    """
    file = folder / START_FILE
    if choice is not None:
        steps, steps_per_round, step_ns = choice
        part = file.with_suffix(".part")
        rounds = ceil(lead_steps(step_ns) / steps_per_round)
        part.write_text(f"{index + rounds * steps_per_round} {steps} {steps_per_round}")
        part.replace(file)
    try:
        start, steps, steps_per_round = map(int, file.read_text().split())
    except (OSError, ValueError):
        return None
    return start, steps, steps_per_round


def agreed_end(folder: Path, requested_end: int | None) -> int | None:
    """Return the step at which all ranks end the profile early; None if no rank must end it early.

    ``requested_end`` is the step at which this rank must end the profile, or None. The first request of any rank counts.
    """
    file = folder / END_FILE
    if requested_end is not None:
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(str(requested_end))
        with contextlib.suppress(FileExistsError):
            os.link(part, file)
        part.unlink()
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
