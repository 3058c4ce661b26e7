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
MAX_INTERRUPTIONS = 3  # No more profiles are started then, because each start costs the training up to a second on a GPU.
BEGAN_LATER = "The profile began only after step {step}, because the training's own profiler was running before."
OTHER_PROFILER = "No profile: the training runs a profiler of its own, and PyTorch allows one at a time. {why} {advice}"
REASONS = {
    "running": "The training's profiler ran until the end.",
    "interrupted": "The training's profiler began again before Sawtooth had recorded enough steps.",
    "short": "Too few steps followed the training's profiler.",
}
OTHER_TOOL = "No profile: {tool} already records this process, and CUDA allows one such tool at a time. Run without {tool}, or use `sawtooth ingest` on the file that it exports."
TRACE_ADVICE = "To analyse the trace that the training wrote: sawtooth ingest {path}"
NO_TRACE_ADVICE = "If the training writes a trace, use `sawtooth ingest` on that file."
# A capture that the training's own code started prints these messages.
AFTER_OTHERS = "when the profiler that already runs in this process has ended"
NO_TRACE = "no trace: another profiler ran in the process until the loop ended, and PyTorch allows one at a time"


def may_start(interruptions: int = 0) -> bool:
    """Return whether a profile can start now, after ``interruptions`` interrupted profiles."""
    return interruptions < MAX_INTERRUPTIONS and not PROFILERS.busy and cuda_tool() is None


class PostponedProfile:
    """A profile that waits for another profiler, with a note about the wait in ``folder``."""

    def __init__(self, folder: Path, profilers: Profilers = PROFILERS) -> None:
        self._profilers, self._folder = profilers, folder
        self._tool, self._interruptions, self._begin_step = cuda_tool(), 0, 0
        self._waited = False  # Whether a profile had to wait.
        self._was_free = False  # Whether a step came after the other profiler had ended.

    @property
    def still_waits(self) -> bool:
        """Return whether a profile that had to wait must still wait."""
        if not self._waited:
            return False
        waits = self._tool is not None or self._interruptions >= MAX_INTERRUPTIONS or self._profilers.busy
        self._was_free |= not waits
        return waits

    def must_wait(self, step: int) -> bool:
        """Return whether the profile after ``step`` must wait; if so, write the note."""
        if self._tool is None and self._interruptions < MAX_INTERRUPTIONS and not self._profilers.busy:
            self._begin_step = step
            return False
        # The recorder's own timed profile began before the loop. It ends soon, so there is nothing to note.
        if getattr(self._profilers.ours, "gives_way", False):
            return True
        if not self._waited:
            self._waited = True
            self.write()
        return True

    def interrupted(self) -> None:
        """Note that another profiler interrupted the recorder's profile, which is then discarded."""
        self._interruptions, self._waited = self._interruptions + 1, True
        self.write()

    def write(self) -> None:
        """Write the note, if a profile had to wait."""
        if not self._waited:
            return
        with contextlib.suppress(OSError):
            why = "interrupted" if self._interruptions >= MAX_INTERRUPTIONS else "short" if self._was_free else "running"
            note = {"step": self._begin_step, "why": why, "tool": self._tool, "exported": self._profilers.exported}
            part = self._folder / f"other_profiler-{os.getpid()}.part"
            part.write_text(json.dumps(note))
            part.replace(part.with_suffix(".json"))


def delay_message(folder: Path, profiled: bool) -> str | None:
    """Return the message about another profiler; None if no profile in ``folder`` had to wait for one."""
    for path in sorted(folder.glob(NOTES)):
        with contextlib.suppress(OSError, ValueError, KeyError):
            note = json.loads(path.read_text())
            if profiled:
                return BEGAN_LATER.format(step=f"{note['step']:,}")
            if note["tool"] is not None:
                return OTHER_TOOL.format(tool=note["tool"])
            trace = next((name for name in reversed(note["exported"]) if Path(name).exists()), None)
            advice = NO_TRACE_ADVICE if trace is None else TRACE_ADVICE.format(path=trace)
            return OTHER_PROFILER.format(why=REASONS[note["why"]], advice=advice)
    return None
