"""Changes of Python's garbage collection: freeze the objects of the start, or collect every N steps.

A later number of frozen objects proves the first change. Disabled automatic collection proves the second. Standard library only.
"""

from __future__ import annotations

import gc
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..inside import TrialState

FROZEN, EVERY = "gc-frozen", "gc-every-n-steps"
BEGIN_AFTER, PROVEN_AFTER = 2, 4  # The change begins and is proven after this many steps.


def _watch(module: ModuleType, inside: TrialState) -> None:
    if inside.values(FROZEN) is not None:
        inside.after_step(BEGIN_AFTER, gc.collect)
        inside.after_step(BEGIN_AFTER, gc.freeze)
        inside.after_step(PROVEN_AFTER, lambda: _prove_frozen(inside))
    if (values := inside.values(EVERY)) is not None:
        inside.after_step(BEGIN_AFTER, gc.disable)
        inside.after_step(PROVEN_AFTER, lambda: _prove_off(inside))
        _collect_every(int(values["steps"]), int(values["steps"]), inside)


def _collect_every(steps: int, next_step: int, inside: TrialState) -> None:
    def collect() -> None:
        gc.collect()
        _collect_every(steps, next_step + steps, inside)

    inside.after_step(next_step, collect)


def _prove_frozen(inside: TrialState) -> None:
    if frozen := gc.get_freeze_count():
        inside.notes.note_proof(FROZEN, f"{frozen} objects are frozen after {PROVEN_AFTER} steps.")


def _prove_off(inside: TrialState) -> None:
    if not gc.isenabled():
        inside.notes.note_proof(EVERY, f"Automatic collection is off after {PROVEN_AFTER} steps.")


WATCHED = {"torch.optim.optimizer": _watch}
