"""Cost of a profile: early end, slowed steps, and the pause of the training.

The hook writes a note. `sawtooth run` prints the message. Standard library only.
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

# The end of a profile slows two steps: the trace is written during the first, and CUPTI is detached during the second.
SLOWED_STEPS = 2
# If the loop ends during a profile, the trace is written if it has this many whole steps. Otherwise the profile is discarded.
MIN_PROFILED_STEPS = 3
MIN_REPORTED_S = 3.0  # Shorter pauses are not reported. The profile of a usual loop is written in one to two seconds.
NOTES = "pause-*.json"
ENDED_EARLY = EARLY_END + " {steps} of {wanted} steps, because {why}."
MEMORY_LIMIT_REASON = "it needed too much memory (about {events:,.0f} operators)"
LOOP_ENDED = "the loop ended"
PAUSE = PAUSED + " for {seconds:.1f} s to write {what}. No step time includes this."


class ProfileCost:
    """Cost of the profiles of one process.

    Notes are written into ``folder``. If there are several ``ranks``, all ranks of this host end their profiles together.
    """

    def __init__(self, folder: Path, ranks: int) -> None:
        self._folder, self._ranks = folder, ranks
        self._limit = EventLimit()
        self._seconds: list[float] = []  # The duration of the end of each profile.
        self._slowed: dict[int, int] = {}  # For each optimizer: how many of its next steps are slowed.

    def note_begin(self, uses_gpu: bool) -> None:
        """Note that a profile began; ``uses_gpu`` as in EventLimit."""
        self._limit = EventLimit(uses_gpu=uses_gpu)

    def must_end(self, step: int) -> bool:
        """Return whether the profile must end after ``step``, because it would have too many events."""
        full = self._limit.end_step()
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
        """Whether a profile has enough steps to be kept after the end of its loop, and not too many events."""
        return self.steps >= MIN_PROFILED_STEPS and self._limit.events() <= MAX_EVENTS

    @contextlib.contextmanager
    def ending(self, optimizers: Iterable[int], wanted: int, *, with_loop: bool = False) -> Iterator[None]:
        """Time the end of a profile, and write a note if the end takes MIN_REPORTED_S or steps are missing.

        The profile should have ``wanted`` steps. If it has fewer, the reason is the end of the loop (``with_loop``), or else too many
        events. A later profile replaces the note. The end of the profile slows the next steps of ``optimizers``.
        """
        start_s, events = time.monotonic(), self._limit.events()
        self.note_end(optimizers)
        yield
        self._seconds.append(time.monotonic() - start_s)
        why = LOOP_ENDED if with_loop else MEMORY_LIMIT_REASON.format(events=round(events, -3))
        note = {"seconds": self._seconds, "steps": self.steps, "wanted": wanted, "why": why}
        path = self._folder / NOTES.replace("*", str(os.getpid()))
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
            if max(self._seconds) >= MIN_REPORTED_S or self.steps < wanted:
                path.write_text(json.dumps(note))

    def note_end(self, optimizers: Iterable[int]) -> None:
        """Note that a profile ends, which slows the next steps of ``optimizers``."""
        self._slowed = dict.fromkeys(optimizers, SLOWED_STEPS)

    def slows(self, optimizer: int) -> bool:
        """Return whether the end of a profile slows the step of ``optimizer`` that ends now."""
        slowed_steps = self._slowed.pop(optimizer, 0)
        if slowed_steps > 1:
            self._slowed[optimizer] = slowed_steps - 1
        return slowed_steps > 0


def cost_messages(folder: Path) -> list[str]:
    """Return the message about the process that was paused longest, from the notes in ``folder``.

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
    early = ENDED_EARLY.format(**longest) if longest["steps"] < longest["wanted"] else ""
    paused = PAUSE.format(seconds=sum(longest["seconds"]), what=what) if max(longest["seconds"]) >= MIN_REPORTED_S else ""
    return [" ".join(filter(None, (early, paused)))]
