"""From where in its program an optimizer's step is called: two loops of one optimizer are told apart by it. Standard library only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import NamedTuple

DEEPEST = 100  # frames of a stack that are looked at: Lightning has 40
MOST_SITES = 64  # of a program whose stack is another at each step, which tells nothing
LINES = 8  # of a stack, innermost first: enough for the line that differs
RECORDER = str(Path(__file__).resolve().parents[1])
STANDARD_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120 - as its modules' file names have it
INSTALLED = ("site-packages", "dist-packages")


class CallSite(NamedTuple):
    """A place in the program: its number by first appearance, and its lines of the user's own files, such as train.py:12, innermost first."""

    number: int = 0
    lines: tuple[str, ...] = ()


class CallSites:
    """The call sites of a process. ``here`` costs a tenth of a microsecond a frame."""

    def __init__(self) -> None:
        self._sites: dict[int, CallSite] = {}

    def here(self) -> CallSite:
        """Return from where the caller is called: the same for the same lines all the way up, so that a loop over epochs is one place."""
        frame: FrameType | None = sys._getframe(1)
        key, depth = 0, 0
        while frame is not None and depth < DEEPEST:
            key = hash((key, id(frame.f_code), frame.f_lasti))
            frame, depth = frame.f_back, depth + 1
        site = self._sites.get(key)
        if site is None:
            if len(self._sites) >= MOST_SITES:
                return CallSite()
            site = self._sites[key] = CallSite(len(self._sites), _lines(sys._getframe(1)))
        return site


def _lines(innermost: FrameType) -> tuple[str, ...]:
    """Return the lines of the stack that are the user's own, else those of installed packages but PyTorch."""
    every: list[tuple[str, str]] = []
    frame: FrameType | None = innermost
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((RECORDER, STANDARD_LIBRARY + os.sep + "runpy", "<frozen")):
            every.append((file, f"{os.path.basename(file)}:{frame.f_lineno}"))  # noqa: PTH119
        frame = frame.f_back
    own = [line for file, line in every if not _is_installed(file)]
    other = [line for file, line in every if f"{os.sep}torch{os.sep}" not in file and not file.startswith(STANDARD_LIBRARY)]
    return tuple((own or other)[:LINES])


def _is_installed(file: str) -> bool:
    return file.startswith(STANDARD_LIBRARY) or any(part in file for part in INSTALLED) or f"{os.sep}torch{os.sep}" in file
