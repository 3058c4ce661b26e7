"""Choice of the step boundary in a loop in which no optimizer steps.

The first kind in ``BOUNDARIES`` with three events is the boundary. Its steps are marked and profiled like those of an optimizer. Once an
optimizer has stepped twice, the optimizer's steps are the loop's steps. Other boundaries are then ignored, and their recorded steps are
deleted. If an optimizer exists that has not stepped yet, the wait for the profile is twelve times as long. Standard library only.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from types import CodeType
from typing import Any, Protocol

from ....loop.step_boundary import BATCH, BOUNDARIES, CALL
from ...in_process.loader_waits import LOADER_WAITS
from ..call_site import RECORDER
from ..settings import HookSettings
from . import boundary_events
from .outermost_module import OutermostModule

MIN_EVENTS = 3  # After this many events of a kind, a loop has begun.
# A boundary with fewer steps is replaced if this many events of other kinds followed its last step, because it does not repeat in the loop.
MIN_BOUNDARY_STEPS = 20
# The wait for a profile is longer by this factor if an optimizer exists. A sanity check or an evaluation can precede the optimizer's steps.
OPTIMIZER_WAIT_FACTOR = 12.0
SEARCH_PERIOD_S = 0.05  # Pause between two searches for the outermost module. A search takes 30 µs.
MAX_SEARCHES = 1200  # The searches take a minute. A module that is not found by then takes little of the loop's time.
MAX_PLACES = 64  # The limit is the same as for the call sites of optimizers (``call_site.MAX_SITES``).
MAX_CACHED_CODES = 1000  # The cache of ``_is_library`` is cleared at this size, so that it stays small.
MAX_FRAMES = 30  # Only this many frames are searched from an event to the program's line, to save time.


class BoundaryHook(Protocol):
    """The interface of a hook for steps that no optimizer makes; ``Hook`` implements it."""

    def on_boundary(self, place: int) -> None:
        """Mark a step; ``place`` is the number of the program's line that ended the step."""

    def drop(self) -> None:
        """Discard everything that was recorded."""

    def finish(self) -> None:
        """Write the remaining data."""

    def leave(self) -> None:
        """Write the remaining marks, and nothing else."""


class BoundaryDetector:
    """Detector of the step boundaries of one process.

    ``make_hook(kind, module)`` makes the hook for a kind of boundary. ``module`` is the name of the called module, or "". Events count while
    ``is_counting()`` is true.
    """

    def __init__(
        self,
        settings: HookSettings,
        make_hook: Callable[[str, str], BoundaryHook],
        is_counting: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings, self._make_hook, self._is_counting = settings, make_hook, is_counting
        self.boundary: str | None = None
        self._hook: BoundaryHook | None = None
        self._counts: Counter[str] = Counter()  # Number of events, by kind.
        self._steps = 0  # Number of marked steps of ``boundary``.
        self._other_events = 0  # Number of events of other kinds since the last event of ``boundary``.
        self._first_other_s = 0.0  # Time of the first of these events.
        self._places: dict[tuple[int, int], int] = {}
        # By the id of a code object: whether the object belongs to PyTorch or the recorder, and the object itself.
        self._libraries: dict[int, tuple[bool, CodeType]] = {}
        self._undo: list[Callable[[], None]] = []
        self._module: OutermostModule | None = None
        self._over = False  # This is not an Event, because a fork could copy an Event's lock while it is locked.
        self._optimizers: Any = None
        self._optimizer_exists = False
        self._thread: threading.Thread | None = None
        self._torch_folder = ""

    def watch(self, optimizers: Any) -> None:
        """Watch for events that may end a step; ``optimizers`` is the module torch.optim.optimizer."""
        self._optimizers = optimizers
        self._torch_folder = sys.modules["torch"].__path__[0]
        self._undo.append(boundary_events.watch_backward(sys.modules["torch.autograd"], self.on_event))
        modules = sys.modules["torch.nn.modules.module"]
        with contextlib.suppress(AttributeError):
            self._module = OutermostModule(modules.Module, lambda: self.on_event(CALL))
        if multiprocessing.parent_process() is None or self._settings.rank is not None:
            self._thread = threading.Thread(target=self._search_module, name="sawtooth-boundaries", daemon=True)
            self._thread.start()

    def watch_batches(self, loaders: Any) -> None:
        """Watch for batches; ``loaders`` is the module torch.utils.data.dataloader."""
        if not self._over:
            self._undo.append(boundary_events.watch_batches(loaders, self.on_event))

    def optimizer_exists(self) -> bool:
        """Return whether an optimizer exists."""
        if not self._optimizer_exists and self._optimizers is not None:
            classes = _with_subclasses(self._optimizers.Optimizer)
            # PyTorch wraps the ``step`` of a class at the first optimizer of the class.
            self._optimizer_exists = any(getattr(optimizer_class.step, "hooked", False) for optimizer_class in classes)
        return self._optimizer_exists

    def has_loop(self) -> bool:
        """Return whether the loop's steps are known, from a boundary or an optimizer."""
        return self.boundary is not None or self._over

    def wait_factor(self) -> float:
        """Return the factor by which the wait for a profile is longer."""
        return OPTIMIZER_WAIT_FACTOR if self.optimizer_exists() else 1.0

    def on_event(self, kind: str) -> None:
        """Count an event of this kind, and mark a step if the event ends one. Errors do not reach the program."""
        if self._over:
            return
        try:
            if not self._is_counting():
                return
            if kind != self.boundary:
                self._counts[kind] += 1
                if not self._is_better(kind):
                    return
                self._choose(kind)
            self._steps += 1
            self._other_events = 0
            if self._hook is not None:
                self._hook.on_boundary(self._place())
        except Exception:
            self.give_up()

    def _is_better(self, kind: str) -> bool:
        if self._counts[kind] < MIN_EVENTS:
            return False
        if self.boundary is None or BOUNDARIES.index(kind) < BOUNDARIES.index(self.boundary):
            return True
        if not self._other_events:
            self._first_other_s = time.monotonic()
        self._other_events += 1
        silent_s = time.monotonic() - self._first_other_s
        return self._steps < MIN_BOUNDARY_STEPS <= self._other_events and silent_s >= self._settings.after_s

    def _choose(self, kind: str) -> None:
        if self._hook is not None:
            self._hook.drop()
            self._counts[self.boundary or ""] = 0
        self.boundary, self._steps = kind, 0
        self._hook = self._make_hook(kind, self._module.name if kind == CALL and self._module is not None else "")

    def _place(self) -> int:
        """Return the number of the innermost line outside PyTorch and the recorder that led to the event."""
        frame: Any = sys._getframe(2)
        for _ in range(MAX_FRAMES):
            if frame.f_back is None or not self._is_library(frame.f_code):
                break
            frame = frame.f_back
        key = id(frame.f_code), frame.f_lasti
        if key not in self._places and len(self._places) >= MAX_PLACES:
            return MAX_PLACES
        return self._places.setdefault(key, len(self._places))

    def _is_library(self, code: CodeType) -> bool:
        """Return whether the code belongs to PyTorch or the recorder.

        The answers are cached, because every event needs several. The cache also stores the code object, so that the id is not reused.
        """
        known = self._libraries.get(id(code))
        if known is None:
            if len(self._libraries) >= MAX_CACHED_CODES:
                self._libraries.clear()
            known = self._libraries[id(code)] = code.co_filename.startswith((self._torch_folder, RECORDER)), code
        return known[0]

    def _search_module(self) -> None:
        searches = 0
        while not self._over and searches < MAX_SEARCHES:
            time.sleep(SEARCH_PERIOD_S)
            with contextlib.suppress(Exception):
                if self._needs_module():
                    searches += 1
                    assert self._module is not None
                    self._module.search()
                    if self._over:  # The detector ended during the search.
                        self._module.release()

    def _needs_module(self) -> bool:
        return self._module is not None and self.boundary in (None, BATCH, CALL) and not self._module.is_found

    def give_up(self) -> None:
        """Ignore further events and delete the recorded ones, because an optimizer makes the loop's steps."""
        hook, self._hook = self._hook, None
        self._leave()
        if hook is not None:
            hook.drop()

    def finish(self) -> None:
        """Write the remaining data at the process's end."""
        self._leave()
        if self._hook is not None:
            self._hook.finish()

    def leave(self) -> None:
        """Write the remaining marks, because the process ends at once."""
        if self._hook is not None:
            self._hook.leave()

    def forget(self) -> None:
        """Ignore further events, because this process was forked."""
        self._hook = None
        self._leave()

    def _leave(self) -> None:
        self._over = True
        for undo in self._undo:
            undo()
        self._undo.clear()
        if self._module is not None:
            self._module.release()


DETECTOR: BoundaryDetector | None = None  # The detector of this process.


def watch_batches(loaders: Any) -> Callable[[], None]:
    """Watch for the batches of all loaders, and time them until the returned function is called.

    ``loaders`` is the module torch.utils.data.dataloader. The detector stops watching when it ends.
    """
    if DETECTOR is not None:
        DETECTOR.watch_batches(loaders)
    return LOADER_WAITS.watch(loaders)


def _with_subclasses(base: Any) -> list[Any]:
    """Return a class and all classes below it."""
    return [base, *(subclass for child in base.__subclasses__() for subclass in _with_subclasses(child))]
