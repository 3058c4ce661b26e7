"""Cost of a profile: when it must end early, which steps it slows, and how long it pauses training.

`sawtooth run` prints the note that is written here. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from ...loop.command import EARLY_END, PAUSED
from .event_limit import MAX_EVENTS, EventLimit
from .rank_agreement import agreed_end

SLOWED_STEPS = 2  # Steps that a profile slows at its end: in the first the trace is written, in the second CUPTI is detached.
# Whole steps. A profile that ends because its loop ended is kept if it has this many. The next loop's first step may follow them in the
# trace.
MIN_KEPT_STEPS = 3
MIN_REPORTED_S = 3.0  # Shorter pauses are not reported. The profile of a usual loop is written in one to two seconds.
NOTES = "pause-*.json"
EARLY = EARLY_END + " {steps} of {wanted} steps, because {why}."
FULL = "the process grew by the memory of about {events:,.0f} operators"
LOOP_ENDED = "the loop ended"
PAUSE = PAUSED + " for {seconds:.1f} s to write {what}. No step time includes this."


class ProfileCost:
    """Cost of the profiles of one process.

    Notes are written into ``folder``. If there are several ``ranks``, all ranks of this host end their profiles together.
    """

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder, self._ranks = folder, ranks
        self._limit = EventLimit()
        self._seconds: list[float] = []  # how long the end of each profile took
        self._slowed: dict[int, int] = {}  # by optimizer: how many of its next steps are slowed

    def begins(self, after_first: bool) -> None:
        """Note that a profile began; ``after_first`` as in EventLimit."""
        self._limit = EventLimit(after_first=after_first)

    def must_end(self, step: int) -> bool:
        """Return whether the profile must end after ``step``, because it would have too many events."""
        full = self._limit.is_reached()
        if self._ranks == 1:
            return full
        end = agreed_end(self._folder, step + 1 if full else None)
        return end is not None and step >= end

    @property
    def steps(self) -> int:
        """The number of whole steps in the profile. Its first step is not whole."""
        return self._limit.steps - 1

    @property
    def allows_keeping(self) -> bool:
        """Whether a profile whose loop has ended is kept: it has enough steps, and not too many events."""
        return self.steps >= MIN_KEPT_STEPS and self._limit.events() <= MAX_EVENTS

    @contextlib.contextmanager
    def ending(self, optimizers: Iterable[int], wanted: int, *, with_loop: bool = False) -> Iterator[None]:
        """Time the end of a profile, which should have ``wanted`` steps, and write a note if necessary.

        The end slows the next steps of ``optimizers``. The note is written if the end takes MIN_REPORTED_S or longer, or if the profile
        has fewer steps than wanted. The reason for fewer steps is the end of the loop (``with_loop``), or else too many events. A later
        profile replaces the note.
        """
        began, events = time.monotonic(), self._limit.events()
        self.slow(optimizers)
        yield
        self._seconds.append(time.monotonic() - began)
        why = LOOP_ENDED if with_loop else FULL.format(events=round(events, -3))
        note = {"seconds": self._seconds, "steps": self.steps, "wanted": wanted, "why": why}
        path = self._folder / NOTES.replace("*", str(os.getpid()))
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            if max(self._seconds) >= MIN_REPORTED_S or self.steps < wanted:
                path.write_text(json.dumps(note))

    def slow(self, optimizers: Iterable[int]) -> None:
        """Note that a profile ends, which slows the next steps of ``optimizers``."""
        self._slowed = dict.fromkeys(optimizers, SLOWED_STEPS)

    def slows(self, optimizer: int) -> bool:
        """Return whether the end of a profile slows the step of ``optimizer`` that ends now."""
        left = self._slowed.pop(optimizer, 0)
        if left > 1:
            self._slowed[optimizer] = left - 1
        return left > 0


def sentences_in(folder: Path) -> list[str]:
    """Return sentences about the process that its profiles paused longest, from the notes in ``folder``.

    The list is empty if every profile was complete and was written quickly.
    """
    notes = []
    for path in folder.glob(NOTES):
        with contextlib.suppress(OSError, ValueError):
            notes.append(json.loads(path.read_text()))
    if not notes:
        return []
    longest = max(notes, key=lambda note: sum(note["seconds"]))
    count = len(longest["seconds"])
    what = "its profile" if count == 1 else f"its {count} profiles"
    early = EARLY.format(**longest) if longest["steps"] < longest["wanted"] else ""
    paused = PAUSE.format(seconds=sum(longest["seconds"]), what=what) if max(longest["seconds"]) >= MIN_REPORTED_S else ""
    return [" ".join(filter(None, (early, paused)))]
