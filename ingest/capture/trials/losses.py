"""The losses of the first steps, to compare a change of the numerics with the base run.

``Tensor.backward`` is patched until MAX_LOSSES losses are noted. Standard library only.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trial_state import TrialState

MAX_LOSSES = 20  # This number of losses is enough to compare two runs.


def _patch(module: ModuleType, state: TrialState) -> None:
    """Note the first MAX_LOSSES scalars on which the training calls backward; ``module`` is torch._tensor."""
    if not state.settings.losses:
        return
    owner = module.Tensor
    original = owner.backward
    losses: list[Any] = []

    def backward(tensor: Any, /, *arguments: Any, **named: Any) -> Any:
        if len(losses) < MAX_LOSSES and tensor.numel() == 1:
            state.call_safely(lambda: losses.append(tensor.detach().clone()))
            if len(losses) == MAX_LOSSES:
                owner.backward = original
                state.call_safely(lambda: state.notes.note_values(losses=[float(loss) for loss in losses]))
        return original(tensor, *arguments, **named)

    backward._torchdynamo_disable = True  # type: ignore[attr-defined]
    owner.backward = backward


PATCHES = {"torch._tensor": _patch}
