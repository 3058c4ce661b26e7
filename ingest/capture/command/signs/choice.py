"""Choice of the sign that ends a loop's steps while no optimizer steps.

Once an optimizer has stepped twice, it makes the loop. All signs are then dropped, with everything that was recorded from them. Until then the best
sign of ``SIGNS`` that has come three times is marked. It is profiled like an optimizer's steps. If an optimizer exists, the profile waits twelve
times as long, because the optimizer may still step. Standard library only.
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

from ....loop.sign import BATCH, CALL, SIGNS
from ..call_site import RECORDER
from ..settings import HookSettings
from . import backward
from .modules import OutermostModule

LEAST = 3  # after so many signs of a kind, a loop has begun
# A kind of sign with fewer marks is replaced by another kind that came this often since: it was not the loop.
FEW = 20
# Factor on the wait for a profile if an optimizer exists, because a sanity check or a first evaluation can precede its steps.
PATIENCE = 12.0
LOOK_S = 0.05  # between searches for the outermost module, which take 30 µs each
LOOKS = 1200  # searches in a minute; a module that was not found by then takes little time
MOST_PLACES = 64
MOST_CODES = 1000
MOST_FRAMES = 30  # frames that are searched from a sign to the program's line


class SignHook(Protocol):
    """Marks and profiles steps; the hook of an optimizer's steps does."""

    def on_sign(self, place: int) -> None:
        """Mark a step that ended at the place of this number."""

    def drop(self) -> None:
        """Keep nothing of what was recorded."""

    def finish(self) -> None:
        """Write what is left."""

    def leave(self) -> None:
        """Write the marks that are left, and nothing else."""


class Signs:
    """The signs of one process.

    ``hook_for`` takes a sign and a module's name and makes the hook for its steps. Signs count while ``counts()`` is true.
    """

    def __init__(
        self, settings: HookSettings, hook_for: Callable[[str, str], SignHook], counts: Callable[[], bool] = lambda: True
    ) -> None:
        self._settings, self._hook_for, self._counts_now = settings, hook_for, counts
        self.sign: str | None = None
        self._hook: SignHook | None = None
        self._counts: Counter[str] = Counter()
        self._marked = 0
        self._others = 0  # signs of other kinds since the last one of ``sign``
        self._first_other = 0.0  # time of the first of these
        self._places: dict[tuple[int, int], int] = {}
        self._libraries: dict[int, tuple[bool, CodeType]] = {}  # by id: whether this code is PyTorch's or ours
        self._undo: list[Callable[[], None]] = []
        self._module: OutermostModule | None = None
        self._over = False  # not an Event: a fork could copy its lock while it is locked
        self._optimizers: Any = None
        self._made = False
        self._thread: threading.Thread | None = None
        self._torch_folder = ""

    def watch(self, optimizers: Any) -> None:
        """Notice what may be a step; ``optimizers`` is the module torch.optim.optimizer, just imported."""
        self._optimizers = optimizers
        self._torch_folder = sys.modules["torch"].__path__[0]
        self._undo.append(backward.watch_backward(sys.modules["torch.autograd"], self.happens))
        modules = sys.modules["torch.nn.modules.module"]
        with contextlib.suppress(AttributeError):
            self._module = OutermostModule(modules.Module, lambda: self.happens(CALL))
        if multiprocessing.parent_process() is None or self._settings.rank is not None:
            self._thread = threading.Thread(target=self._look_now_and_then, name="sawtooth-signs", daemon=True)
            self._thread.start()

    def watch_batches(self, loaders: Any) -> None:
        """Notice batches; ``loaders`` is the module torch.utils.data.dataloader, just imported."""
        if not self._over:
            self._undo.append(backward.watch_batches(loaders, self.happens))

    def optimizer_exists(self) -> bool:
        """Return whether an optimizer exists; PyTorch then wraps the ``step`` of its class."""
        if not self._made and self._optimizers is not None:
            self._made = any(getattr(each.step, "hooked", False) for each in _below(self._optimizers.Optimizer))
        return self._made

    def has_loop(self) -> bool:
        """Return whether a sign or an optimizer makes the loop's steps."""
        return self.sign is not None or self._over

    def patience(self) -> float:
        """Return the factor by which the profile of a sign's steps is delayed."""
        return PATIENCE if self.optimizer_exists() else 1.0

    def happens(self, sign: str) -> None:
        """Count a sign of kind ``sign``; errors do not reach the program."""
        if self._over:
            return
        try:
            if not self._counts_now():
                return
            if sign != self.sign:
                self._counts[sign] += 1
                if not self._is_better(sign):
                    return
                self._take(sign)
            self._marked += 1
            self._others = 0
            if self._hook is not None:
                self._hook.on_sign(self._place())
        except Exception:
            self.give_up()

    def _is_better(self, sign: str) -> bool:
        if self._counts[sign] < LEAST:
            return False
        if self.sign is None or SIGNS.index(sign) < SIGNS.index(self.sign):
            return True
        if not self._others:
            self._first_other = time.monotonic()
        self._others += 1
        silent_s = time.monotonic() - self._first_other
        return self._marked < FEW <= self._others and silent_s >= self._settings.after_s

    def _take(self, sign: str) -> None:
        if self._hook is not None:
            self._hook.drop()
            self._counts[self.sign or ""] = 0
        self.sign, self._marked = sign, 0
        self._hook = self._hook_for(sign, self._module.name if sign == CALL and self._module is not None else "")

    def _place(self) -> int:
        """Return the number of the innermost line, outside PyTorch and the recorder, that led to the sign."""
        frame: Any = sys._getframe(2)
        for _ in range(MOST_FRAMES):
            if frame.f_back is None or not self._is_library(frame.f_code):
                break
            frame = frame.f_back
        key = id(frame.f_code), frame.f_lasti
        if key not in self._places and len(self._places) >= MOST_PLACES:
            return MOST_PLACES
        return self._places.setdefault(key, len(self._places))

    def _is_library(self, code: CodeType) -> bool:
        """Return whether the code is PyTorch's or ours.

        Each sign needs this, so the answers are cached. The cache stores the code object too, so that its id is not reused.
        """
        known = self._libraries.get(id(code))
        if known is None:
            if len(self._libraries) >= MOST_CODES:
                self._libraries.clear()
            known = self._libraries[id(code)] = code.co_filename.startswith((self._torch_folder, RECORDER)), code
        return known[0]

    def _look_now_and_then(self) -> None:
        looks = 0
        while not self._over and looks < LOOKS:
            time.sleep(LOOK_S)
            with contextlib.suppress(Exception):
                if self._wants_module():
                    looks += 1
                    assert self._module is not None
                    self._module.look()
                    if self._over:  # ended during the search: release the module that it found
                        self._module.leave()

    def _wants_module(self) -> bool:
        return self._module is not None and self.sign in (None, BATCH, CALL) and not self._module.is_found

    def give_up(self) -> None:
        """Ignore further signs and delete the recorded ones, because an optimizer makes the loop's steps."""
        hook, self._hook = self._hook, None
        self._leave()
        if hook is not None:
            hook.drop()

    def finish(self) -> None:
        """Write what is left at the process's end."""
        self._leave()
        if self._hook is not None:
            self._hook.finish()

    def leave(self) -> None:
        """Write the marks that are left, where the process ends at once."""
        if self._hook is not None:
            self._hook.leave()

    def forget(self) -> None:
        """Do nothing more, in a process that was forked."""
        self._hook = None
        self._leave()

    def _leave(self) -> None:
        self._over = True
        for undo in self._undo:
            undo()
        self._undo.clear()
        if self._module is not None:
            self._module.leave()


HERE: Signs | None = None  # of this process


def watch_batches(loaders: Any) -> None:
    """Notice the batches of all loaders; ``loaders`` is the module torch.utils.data.dataloader."""
    if HERE is not None:
        HERE.watch_batches(loaders)


def _below(of: Any) -> list[Any]:
    """Return a class and all its subclasses."""
    return [of, *(each for child in of.__subclasses__() for each in _below(child))]
