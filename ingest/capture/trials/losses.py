"""The losses of the first steps, to compare a change of the numerics with the base run.

``Tensor.backward`` is patched until MAX_LOSSES losses are noted. Standard library only.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .inside import TrialState

MAX_LOSSES = 20  # This number of losses is enough to compare two runs.


def _watch(module: ModuleType, inside: TrialState) -> None:
    """Note the first MAX_LOSSES scalars on which the training calls backward; ``module`` is torch._tensor."""
    if not inside.settings.losses:
        return
    owner = module.Tensor
    original = owner.backward
    losses: list[Any] = []

    def backward(tensor: Any, /, *arguments: Any, **named: Any) -> Any:
        if len(losses) < MAX_LOSSES and tensor.numel() == 1:
            inside.quietly(lambda: losses.append(tensor.detach().clone()))
            if len(losses) == MAX_LOSSES:
                owner.backward = original
                inside.quietly(lambda: inside.notes.note_values(losses=[float(loss) for loss in losses]))
        return original(tensor, *arguments, **named)

    backward._torchdynamo_disable = True  # type: ignore[attr-defined]
    owner.backward = backward


WATCHED = {"torch._tensor": _watch}
