"""Call sites of optimizer steps, which distinguish two loops that use the same optimizer.

Standard library only.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

MAX_FRAMES = 100  # At most this many frames of a stack are examined. Lightning's stacks have 40.
MAX_SITES = 64  # At most this many call sites are distinguished, because in some programs the stack differs at each step.
GENERATOR_FLAGS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
MAX_LINES = 8  # Only the innermost lines of a stack are written. Two loops differ in at least one of them.
RECORDER = str(Path(__file__).resolve().parents[1])
STANDARD_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120 - file names of modules must begin with this text
# Libraries with a training loop that calls the optimizer: the prefix of a module's name, and the library.
TRAINERS = (("transformers.trainer", "Transformers"), ("pytorch_lightning.", "Lightning"), ("lightning.pytorch.", "Lightning"))
INSTALLED = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
# This folder has scripts such as pytest, which start a program that is elsewhere.
CONSOLE_SCRIPTS = os.path.dirname(sys.executable or __file__)  # noqa: PTH120


class CallSite(NamedTuple):
    """A place in the program that calls an optimizer's step.

    ``number`` counts places in order of first appearance. ``lines`` are in the user's own files, such as train.py:12, innermost first.
    ``trainer`` is the library with the training loop (see ``TRAINERS``); "" if the user wrote the loop.
    """

    number: int = 0
    lines: tuple[str, ...] = ()
    trainer: str = ""


class _FrameMark:
    """A mark of a frame. It is stored as the frame's trace function, which is otherwise unused."""

    def __call__(self, *_: object) -> None:
        """Do nothing. A debugger that is started later may call the mark as a trace function."""


@dataclass
class _CallPath:
    """The call path of a step, from the innermost call that was already running at the previous step.

    ``depth`` and ``mark`` identify this outer call. ``lines`` lead from the outer call to the step. Each line has a depth, a code object and
    an instruction. Lines above the outer call cannot change while the outer call runs.
    """

    depth: int
    mark: _FrameMark
    lines: list[tuple[int, CodeType, int]]
    site: CallSite


class CallSites:
    """The call sites of a process.

    The whole stack is examined at the first two steps of a loop. Afterwards only the lines within the loop are checked, each in 0.1 µs.
    """

    def __init__(self) -> None:
        self._sites: dict[tuple[tuple[int, int], ...], CallSite] = {}
        # By optimizer. None means that the optimizer's last step was the first step of a loop.
        self._paths: dict[int, _CallPath | None] = {}

    def current(self, optimizer: int = 0, depth: int = 1) -> CallSite:
        """Return the call site of the frame ``depth`` levels above.

        Stacks with equal lines have one call site, so all epochs of a loop have one. The call path is stored for each ``optimizer``, because
        the steps of one optimizer usually have one path.
        """
        path = self._paths.get(optimizer)
        if path is not None:
            try:
                for level, code, instruction in path.lines:
                    frame = sys._getframe(level)
                    if frame.f_lasti != instruction or frame.f_code is not code:
                        break
                else:
                    if sys._getframe(path.depth).f_trace is path.mark:
                        return path.site
            except ValueError:
                pass  # The stack is less deep than the stored path.
        return self._walk(sys._getframe(depth), optimizer, depth)

    def _walk(self, innermost: FrameType, optimizer: int, depth: int) -> CallSite:
        """Find the call site from the whole stack above ``innermost``, and store the call path."""
        frames = _stack(innermost)
        indices = _users_frames(frames)
        site = self._site([frames[index] for index in indices], frames)
        is_first_step = optimizer not in self._paths or self._paths[optimizer] is not None
        self._paths[optimizer] = None if is_first_step else _call_path(frames, indices, depth, site)
        for frame in frames:
            if frame.f_trace is None:
                frame.f_trace = _FrameMark()
        return site

    def _site(self, frames: Sequence[FrameType], stack: Sequence[FrameType]) -> CallSite:
        key = tuple((id(frame.f_code), frame.f_lasti) for frame in frames)
        site = self._sites.get(key)
        if site is None:
            if len(self._sites) >= MAX_SITES:
                return CallSite(MAX_SITES)  # All further call sites share this number.
            site = self._sites[key] = CallSite(len(self._sites), tuple(map(_line, frames[:MAX_LINES])), _trainer(stack))
        return site


def _stack(innermost: FrameType) -> list[FrameType]:
    frames: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None and len(frames) < MAX_FRAMES:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _trainer(stack: Sequence[FrameType]) -> str:
    """Return the name of the library whose training loop is on the stack; "" without one."""
    modules = [str(frame.f_globals.get("__name__", "")) for frame in stack]
    return next((name for start, name in TRAINERS if any(module.startswith(start) for module in modules)), "")


def line_at(innermost: FrameType) -> str:
    """Return the innermost line of the user's files on a stack, such as train.py:12; "" without one."""
    frames = _stack(innermost)
    return next(map(_line, (frames[index] for index in _users_frames(frames))), "")


def _line(frame: FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"  # noqa: PTH119


def _call_path(frames: Sequence[FrameType], indices: Sequence[int], depth: int, site: CallSite) -> _CallPath | None:
    """Return the call path from the innermost frame with a mark; None without one.

    Frames of generators and coroutines do not count, because another caller can resume them.
    """
    for outer, frame in enumerate(frames):
        mark = frame.f_trace
        if isinstance(mark, _FrameMark) and not frame.f_code.co_flags & GENERATOR_FLAGS:
            lines = [(depth + index, frames[index].f_code, frames[index].f_lasti) for index in indices if index <= outer]
            return _CallPath(depth + outer, mark, lines, site)
    return None


def _users_frames(frames: Sequence[FrameType]) -> list[int]:
    """Return the indices of frames in the user's files, or else in installed packages except PyTorch."""
    candidates = []
    for index, frame in enumerate(frames):
        file = frame.f_code.co_filename
        if not file.startswith((RECORDER, STANDARD_LIBRARY + os.sep + "runpy", "<frozen")):
            candidates.append((index, file))
    users = [index for index, file in candidates if not _is_installed(file)]
    return users or [index for index, file in candidates if not file.startswith((*_pytorch(), STANDARD_LIBRARY + os.sep))]


def _is_installed(file: str) -> bool:
    folder = os.path.dirname(file)  # noqa: PTH120
    return (
        file.startswith((*_pytorch(), STANDARD_LIBRARY + os.sep))
        or any(part in file for part in INSTALLED)
        or folder == CONSOLE_SCRIPTS
    )


def _pytorch() -> tuple[str, ...]:
    """Return the folder of the imported PyTorch, which may be a checkout; () if PyTorch is not imported."""
    file = getattr(sys.modules.get("torch"), "__file__", None)
    return (os.path.dirname(file) + os.sep,) if file else ()  # noqa: PTH120
