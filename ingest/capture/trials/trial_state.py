"""The entry of `sawtooth try` in a training: it patches PyTorch's modules after they are loaded.

``startup/sitecustomize.py`` calls ``begin`` at the start of each Python. Errors in this code are noted and never reach the training.
Standard library only.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from ..command.settings import HookSettings
from . import files, losses, saving, trackers
from .changes import collector, copies, environment, loader, optimizer, outermost, parallel, switches
from .notes import Notes
from .settings import NOTES, TRIAL, TrialSettings

Patch = Callable[[ModuleType, "TrialState"], None]
PARTS: tuple[Mapping[str, Patch], ...] = (
    loader.PATCHES,
    optimizer.PATCHES,
    parallel.PATCHES,
    switches.PATCHES,
    outermost.PATCHES,
    copies.PATCHES,
    collector.PATCHES,
    environment.PATCHES,
    saving.PATCHES,
    trackers.PATCHES,
    losses.PATCHES,
)


class TrialState:
    """The state that all patches of one process share: requested changes, notes, and counted steps."""

    def __init__(self, settings: TrialSettings, notes: Notes, guard: files.Guard) -> None:
        self.settings, self.notes, self.guard = settings, notes, guard
        # Each entry starts with the number of the step before the action.
        self._actions: list[tuple[int, Callable[[], object]]] = []
        self._steps = 0

    def requested(self, slug: str) -> Mapping[str, Any] | None:
        """Return the values of a requested change; None if the change is not requested."""
        return self.settings.changes.get(slug)

    def after_step(self, number: int, action: Callable[[], object]) -> None:
        """Call ``action`` after the optimizer step with this number (from 1) in this process."""
        self._actions.append((number, action))

    def step(self, *_: Any) -> None:
        """Count an optimizer step, and call the actions that are due after the step."""
        self._steps += 1
        due = [action for number, action in self._actions if number <= self._steps]
        if due:
            self._actions = [(number, action) for number, action in self._actions if number > self._steps]
            for action in due:
                self.call_safely(action)

    step._torchdynamo_disable = True  # type: ignore[attr-defined]

    def call_safely(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call ``function`` and return its result. After an error, note the error and return None."""
        try:
            return function(*arguments, **named)
        except Exception as error:
            self.notes.note_error(error)
            return None


def begin() -> dict[str, Callable[[ModuleType], None]]:
    """Begin the trial in this process; return for each module the function to call after its import."""
    settings = TrialSettings.of(os.environ[TRIAL])
    notes = Notes(_notes_path)
    state = TrialState(settings, notes, files.watch(settings, notes))
    awaited: dict[str, Callable[[ModuleType], None]] = {"torch.optim.optimizer": lambda module: _count_steps(module, state)}
    for part in PARTS:
        for name, patch in part.items():
            awaited[name] = functools.partial(_apply, state, awaited.get(name), patch)
    return awaited


def _apply(state: TrialState, earlier: Callable[[ModuleType], None] | None, patch: Patch, module: ModuleType) -> None:
    if earlier is not None:
        state.call_safely(earlier, module)
    state.call_safely(patch, module, state)


def _count_steps(module: ModuleType, state: TrialState) -> None:
    module.register_optimizer_step_post_hook(state.step)


@functools.cache
def _process_notes_path(pid: int) -> Path:
    return HookSettings.of(os.environ).file(NOTES, "json")


def _notes_path() -> Path:
    return _process_notes_path(os.getpid())  # A forked worker must not replace its parent's notes.
