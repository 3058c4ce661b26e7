"""Changes of Python's garbage collection: freeze the objects of the start, or collect every N steps.

The first change is proven if objects are frozen some steps later, the second if automatic collection is then disabled.
Standard library only.
"""

from __future__ import annotations

import gc
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..trial_state import TrialState

FROZEN, EVERY = "gc-frozen", "gc-every-n-steps"
BEGIN_AFTER, PROVEN_AFTER = 2, 4  # The change begins and is proven after this many steps.


def _patch(module: ModuleType, state: TrialState) -> None:
    if state.requested(FROZEN) is not None:
        state.after_step(BEGIN_AFTER, gc.collect)
        state.after_step(BEGIN_AFTER, gc.freeze)
        state.after_step(PROVEN_AFTER, lambda: _prove_frozen(state))
    if (values := state.requested(EVERY)) is not None:
        state.after_step(BEGIN_AFTER, gc.disable)
        state.after_step(PROVEN_AFTER, lambda: _prove_off(state))
        _collect_every(int(values["steps"]), int(values["steps"]), state)


def _collect_every(steps: int, next_step: int, state: TrialState) -> None:
    def collect() -> None:
        gc.collect()
        _collect_every(steps, next_step + steps, state)

    state.after_step(next_step, collect)


def _prove_frozen(state: TrialState) -> None:
    if frozen := gc.get_freeze_count():
        state.notes.note_proof(FROZEN, f"{frozen} objects are frozen after {PROVEN_AFTER} steps.")


def _prove_off(state: TrialState) -> None:
    if not gc.isenabled():
        state.notes.note_proof(EVERY, f"Automatic collection is off after {PROVEN_AFTER} steps.")


PATCHES = {"torch.optim.optimizer": _patch}
