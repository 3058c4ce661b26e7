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
INSTALLED = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
CONSOLE_SCRIPTS = os.path.dirname(sys.executable or __file__)  # noqa: PTH120 - pytest, say: the program that it starts is elsewhere


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
                return CallSite(MOST_SITES)  # all others are one
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
    other = [line for file, line in every if not file.startswith((*_pytorch(), STANDARD_LIBRARY + os.sep))]
    return tuple((own or other)[:LINES])


def _is_installed(file: str) -> bool:
    own_folder = os.path.dirname(file)  # noqa: PTH120
    return (
        file.startswith((*_pytorch(), STANDARD_LIBRARY + os.sep))
        or any(part in file for part in INSTALLED)
        or own_folder == CONSOLE_SCRIPTS
    )


def _pytorch() -> tuple[str, ...]:
    """Return the folder that PyTorch was imported from, which need not be an installed package's."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return (os.path.dirname(file) + os.sep,) if file else ()  # noqa: PTH120
