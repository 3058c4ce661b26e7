"""Notes that another profiler delayed or prevented the profile, and the messages about them.

The hook writes a note. `sawtooth run` prints the message.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from .profilers import PROFILERS, Profilers, cuda_tool

NOTES = "other_profiler-*.json"
MOST_TRIES = 3  # interrupted profiles before giving up, because each start costs the training up to a second on a GPU
LATER = "The profile began only after step {step}, because the training's own profiler was running before."
ALONE = "No profile: the training runs a profiler of its own, and PyTorch allows one at a time. {why} {advice}"
WHY = {
    "running": "It ran until the end.",
    "interrupted": "It began again before ours had recorded enough steps.",
    "short": "Too few steps followed it.",
}
TOOL = "No profile: {tool} already records this process, and CUDA allows one such tool at a time. Run without it, or use `sawtooth ingest` on its export."
WRITTEN = "To analyse the trace that the training wrote: sawtooth ingest {path}"
UNKNOWN = "If the training writes a trace of it, use `sawtooth ingest` on that file."
# messages of a capture that the training's own code started
AFTER_OTHERS = "when the profiler that already runs in this process has ended"
NO_TRACE = "no trace: another profiler ran in the process until the loop ended, and PyTorch allows one at a time"


def may_start(interrupted: int = 0) -> bool:
    """Return whether a profile can start now, if ``interrupted`` profiles were interrupted so far."""
    return interrupted < MOST_TRIES and not PROFILERS.busy and cuda_tool() is None


class Postponed:
    """State of a profile that waits for another profiler, with a note in ``folder``."""

    def __init__(self, folder: Path, profilers: Profilers = PROFILERS) -> None:
        self._profilers, self._folder = profilers, folder
        self._tool, self._interrupted, self._began = cuda_tool(), 0, 0
        # Whether a profile had to wait; whether a step came after the other profiler had ended.
        self._waited = self._was_free = False

    @property
    def still_waits(self) -> bool:
        """Return whether a profile that had to wait must still wait."""
        if not self._waited:
            return False
        waits = self._tool is not None or self._interrupted >= MOST_TRIES or self._profilers.busy
        self._was_free |= not waits
        return waits

    def must_wait(self, step: int) -> bool:
        """Return whether the profile after ``step`` must wait; if so, write the note."""
        if self._tool is None and self._interrupted < MOST_TRIES and not self._profilers.busy:
            self._began = step
            return False
        # Ours is a timed profile that began before the loop; it ends now.
        if getattr(self._profilers.ours, "gives_way", False):
            return True
        if not self._waited:
            self._waited = True
            self.write()
        return True

    def interrupted(self) -> None:
        """Record that another profiler interrupted ours, whose data is discarded."""
        self._interrupted, self._waited = self._interrupted + 1, True
        self.write()

    def write(self) -> None:
        """Write the note, if a profile had to wait."""
        if not self._waited:
            return
        with contextlib.suppress(OSError):
            why = "interrupted" if self._interrupted >= MOST_TRIES else "short" if self._was_free else "running"
            note = {"step": self._began, "why": why, "tool": self._tool, "exported": self._profilers.exported}
            part = self._folder / f"other_profiler-{os.getpid()}.part"
            part.write_text(json.dumps(note))
            part.replace(part.with_suffix(".json"))


def sentence_of(folder: Path, profiled: bool) -> str | None:
    """Return the message about another profiler; None if no profile in ``folder`` had to wait for one."""
    for path in sorted(folder.glob(NOTES)):
        with contextlib.suppress(OSError, ValueError, KeyError):
            note = json.loads(path.read_text())
            if profiled:
                return LATER.format(step=f"{note['step']:,}")
            if note["tool"] is not None:
                return TOOL.format(tool=note["tool"])
            written = next((name for name in reversed(note["exported"]) if Path(name).exists()), None)
            advice = UNKNOWN if written is None else WRITTEN.format(path=written)
            return ALONE.format(why=WHY[note["why"]], advice=advice)
    return None
