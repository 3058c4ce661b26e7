"""Non-blocking copies of pinned batches to the GPU, by ``Tensor.to`` and ``Tensor.cuda``.

Only batches of a loader with pinned memory are copied without blocking, because no code writes to their memory again. Such a copy proves
the change. Standard library only.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..inside import Inside

NON_BLOCKING = "non-blocking-copies"
_DELIVERED: dict[int, Any] = {}  # It has weak references to the pinned tensors of batches, by id.


def _watch_batches(module: ModuleType, inside: Inside) -> None:
    if inside.values(NON_BLOCKING) is None:
        return
    owner = module._BaseDataLoaderIter
    original = owner.__next__

    def delivered(iterator: Any) -> Any:
        batch = original(iterator)
        inside.quietly(_remember, batch)
        return batch

    owner.__next__ = delivered


def _remember(batch: Any) -> None:
    if hasattr(batch, "is_pinned"):
        if batch.is_pinned():
            key = id(batch)
            _DELIVERED[key] = weakref.ref(batch, lambda _: _DELIVERED.pop(key, None))
    elif isinstance(batch, dict):
        for each in batch.values():
            _remember(each)
    elif isinstance(batch, (list, tuple)):
        for each in batch:
            _remember(each)


def _watch_tensors(module: ModuleType, inside: Inside) -> None:
    if inside.values(NON_BLOCKING) is None:
        return
    for name in ("to", "cuda"):
        _watch_copy(module.Tensor, name, inside)


def _watch_copy(owner: Any, name: str, inside: Inside) -> None:
    original = getattr(owner, name)

    def copied(tensor: Any, /, *arguments: Any, **named: Any) -> Any:
        known = _DELIVERED.get(id(tensor))
        if known is None or known() is not tensor or "non_blocking" in named or any(each is True for each in arguments):
            return original(tensor, *arguments, **named)
        result = original(tensor, *arguments, **named, non_blocking=True)
        if NON_BLOCKING not in inside.notes.content["proofs"] and result.is_cuda:
            inside.notes.note_proof(NON_BLOCKING, "A pinned batch was copied to the GPU without waiting.")
        return result

    setattr(owner, name, copied)


WATCHED = {"torch.utils.data.dataloader": _watch_batches, "torch._tensor": _watch_tensors}
