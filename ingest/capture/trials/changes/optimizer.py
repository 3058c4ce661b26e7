"""Fused and foreach updates of PyTorch's own optimizers, by arguments of their constructors.

The function that the optimizer calls for its first update proves the change. An optimizer of another library is not changed, nor an optimizer
that rejects the argument. Standard library only.
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..patching import change_arguments

if TYPE_CHECKING:
    from ..trial_state import TrialState

FUSED, FOREACH = "fused-optimizer", "foreach-optimizer"
UPDATE_FUNCTIONS = {"_fused_": FUSED, "_multi_tensor_": FOREACH, "_single_tensor_": "one by one"}


def _patch(module: ModuleType, state: TrialState) -> None:
    base = module.Optimizer
    for kind in {id(kind): kind for kind in vars(module).values() if isinstance(kind, type)}.values():
        if issubclass(kind, base) and kind is not base and "__init__" in vars(kind):
            _patch_class(kind, state)


def _patch_class(kind: type, state: TrialState) -> None:
    accepts = [name for name in ("fused", "foreach") if name in inspect.signature(kind.__init__).parameters]  # type: ignore[misc]

    def change(optimizer: Any, arguments: dict[str, Any]) -> list[str]:
        if "fused" in accepts and state.requested(FUSED) is not None:
            if arguments.get("differentiable"):
                state.notes.note_refusal(FUSED, "A differentiable optimizer cannot be fused.")
                return []
            arguments.update(fused=True, **({"foreach": None} if "foreach" in accepts else {}))
            return [FUSED]
        if "foreach" in accepts and state.requested(FOREACH) is not None:
            arguments.update(foreach=True, **({"fused": None} if "fused" in accepts else {}))
            return [FOREACH]
        return []

    def after(optimizer: Any, arguments: dict[str, Any]) -> None:
        if type(optimizer) is not kind and type(optimizer).__init__ is not kind.__init__:  # type: ignore[misc]
            return  # The patched constructor of the subclass notes the optimizer.
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        group = optimizer.param_groups[0]
        state.notes.note_seen(
            "optimizer",
            kind=kind.__qualname__,
            accepts=accepts,
            foreach=group.get("foreach"),
            fused=group.get("fused"),
            device=parameters[0].device.type if parameters else None,
            tensors=len(parameters),
        )

    change_arguments(kind, state, change, after)
    for name in [name for name in vars(sys.modules[kind.__module__]) if name.startswith(tuple(UPDATE_FUNCTIONS))]:
        _note_first_call(sys.modules[kind.__module__], name, kind, state)


def _note_first_call(module: ModuleType, name: str, kind: type, state: TrialState) -> None:
    """Note the first call of a function with which an optimizer can update, then restore the function."""
    original = getattr(module, name)
    slug = next(slug for start, slug in UPDATE_FUNCTIONS.items() if name.startswith(start))
    if hasattr(original, "__wrapped__") and getattr(original, "of_trial", False):
        return

    @functools.wraps(original)
    def update(*arguments: Any, **named: Any) -> Any:
        result = original(*arguments, **named)
        setattr(module, name, original)
        state.call_safely(state.notes.note_seen, "update", of=kind.__qualname__, way=name)
        if state.requested(slug) is not None:
            state.notes.note_proof(slug, f"The optimizer called {name}.")
        return result

    update.of_trial = True  # type: ignore[attr-defined]
    update._torchdynamo_disable = True  # type: ignore[attr-defined]
    setattr(module, name, update)


PATCHES = {"torch.optim": _patch}
