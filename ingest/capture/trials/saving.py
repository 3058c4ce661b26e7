"""Write a trial's checkpoints (torch.save, safetensors, distributed) into a separate folder.

A file that the trial saved is also loaded from this folder. The functions are replaced as soon as their module is loaded, so that a script
that imports them by name gets the replacements. Standard library only.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trial_state import TrialState

SAVES = {
    "torch.serialization": ("save", "f"),
    "safetensors.torch": ("save_file", "filename"),
    "safetensors.numpy": ("save_file", "filename"),
    "torch.distributed.checkpoint.state_dict_saver": ("save", "checkpoint_id"),
}
LOADS = {
    "torch.serialization": ("load", "f"),
    "safetensors.torch": ("load_file", "filename"),
    "torch.distributed.checkpoint.state_dict_loader": ("load", "checkpoint_id"),
}


def redirected(path: Any, state: TrialState) -> str | None:
    """Return the path of a file in the trial's folder for checkpoints.

    The result is None for an object that is not a path, and for a file in the trial's own copy of the training's folder.
    """
    if not isinstance(path, (str, os.PathLike)):
        return None
    absolute = os.path.abspath(os.fspath(path))  # noqa: PTH100 - a name with .. must not leave the folder
    if any(absolute.startswith(folder + os.sep) for folder in state.settings.private):
        return None
    return os.path.join(state.settings.saves, absolute.lstrip(os.sep).replace(":", "_"))  # noqa: PTH118


def _patch(module: ModuleType, state: TrialState) -> None:
    for table, new_path_of in ((SAVES, _to_save), (LOADS, _to_load)):
        if module.__name__ in table:
            _patch_function(module, *table[module.__name__], new_path_of, state)


def _patch_function(
    module: ModuleType, name: str, argument: str, new_path_of: Callable[[Any, TrialState], str | None], state: TrialState
) -> None:
    original = getattr(module, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def redirect(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:
            return original(*arguments, **named)  # Raises the training's own error.
        new_path = state.call_safely(new_path_of, bound.arguments.get(argument), state)
        if new_path is not None:
            bound.arguments[argument] = new_path
        return original(*bound.args, **bound.kwargs)

    setattr(module, name, redirect)


def _to_save(path: Any, state: TrialState) -> str | None:
    new_path = redirected(path, state)
    if new_path is not None:
        state.guard.check(path, "torch.save")
        os.makedirs(os.path.dirname(new_path), exist_ok=True)  # noqa: PTH103, PTH120
    return new_path


def _to_load(path: Any, state: TrialState) -> str | None:
    new_path = redirected(path, state)
    return new_path if new_path is not None and os.path.exists(new_path) else None  # noqa: PTH110


PATCHES = dict.fromkeys({**SAVES, **LOADS}, _patch)
