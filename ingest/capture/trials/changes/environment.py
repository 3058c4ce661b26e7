"""Changes of environment variables: threads, and the allocator of GPU memory.

`sawtooth try` sets the variables. After the third step, PyTorch's number of threads proves the first change, and an expandable segment the
second. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..trial_state import TrialState

THREADS, SEGMENTS = "omp-threads", "expandable-segments"
PROVEN_AFTER = 3  # Number of steps.
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"


def variables(changes: Mapping[str, Mapping[str, Any]], before: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for ``changes``; ``before`` is the environment without them."""
    added = {}
    if THREADS in changes:
        added["OMP_NUM_THREADS"] = added["MKL_NUM_THREADS"] = str(changes[THREADS]["threads"])
    if SEGMENTS in changes:
        parts = [part for part in before.get(ALLOCATOR, "").split(",") if part and not part.startswith("expandable_segments")]
        added[ALLOCATOR] = ",".join([*parts, "expandable_segments:True"])
    return added


def _patch(module: ModuleType, state: TrialState) -> None:
    if state.requested(THREADS) is not None or state.requested(SEGMENTS) is not None:
        state.after_step(PROVEN_AFTER, lambda: _prove(state))


def _prove(state: TrialState) -> None:
    torch = sys.modules["torch"]
    values = state.requested(THREADS)
    if values is not None and torch.get_num_threads() == int(values["threads"]):
        state.notes.note_proof(THREADS, f"PyTorch uses {torch.get_num_threads()} threads.")
    if state.requested(SEGMENTS) is None or not torch.cuda.is_available():
        return
    if any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot()):
        state.notes.note_proof(SEGMENTS, "The allocator has an expandable segment.")


PATCHES = {"torch.optim.optimizer": _patch}
