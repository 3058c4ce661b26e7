"""Non-blocking copies of pinned batches to the GPU, by ``Tensor.to`` and ``Tensor.cuda``.

Only batches of a loader with pinned memory are copied without blocking, because no code writes to their memory again. A non-blocking copy
to the GPU proves the change. Standard library only.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..trial_state import TrialState

NON_BLOCKING = "non-blocking-copies"
_PINNED_TENSORS: dict[int, Any] = {}  # Weak references to the pinned tensors of batches, by id.


def _patch_batches(module: ModuleType, state: TrialState) -> None:
    if state.requested(NON_BLOCKING) is None:
        return
    owner = module._BaseDataLoaderIter
    original = owner.__next__

    def next_batch(iterator: Any) -> Any:
        batch = original(iterator)
        state.call_safely(_remember, batch)
        return batch

    owner.__next__ = next_batch


def _remember(batch: Any) -> None:
    if hasattr(batch, "is_pinned"):
        if batch.is_pinned():
            key = id(batch)
            _PINNED_TENSORS[key] = weakref.ref(batch, lambda _: _PINNED_TENSORS.pop(key, None))
    elif isinstance(batch, dict):
        for part in batch.values():
            _remember(part)
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            _remember(part)


def _patch_tensors(module: ModuleType, state: TrialState) -> None:
    if state.requested(NON_BLOCKING) is None:
        return
    for name in ("to", "cuda"):
        _patch_copy(module.Tensor, name, state)


def _patch_copy(owner: Any, name: str, state: TrialState) -> None:
    original = getattr(owner, name)

    def copy(tensor: Any, /, *arguments: Any, **named: Any) -> Any:
        reference = _PINNED_TENSORS.get(id(tensor))
        is_pinned = reference is not None and reference() is tensor
        has_choice = "non_blocking" in named or any(argument is True for argument in arguments)
        if not is_pinned or has_choice:
            return original(tensor, *arguments, **named)
        result = original(tensor, *arguments, **named, non_blocking=True)
        if NON_BLOCKING not in state.notes.content["proofs"] and result.is_cuda:
            state.notes.note_proof(NON_BLOCKING, "A pinned batch was copied to the GPU without waiting.")
        return result

    setattr(owner, name, copy)


PATCHES = {"torch.utils.data.dataloader": _patch_batches, "torch._tensor": _patch_tensors}
