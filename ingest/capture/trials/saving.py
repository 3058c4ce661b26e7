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
    from .inside import TrialState

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


def redirected(path: Any, inside: TrialState) -> str | None:
    """Return the path of a file in the trial's folder for checkpoints.

    The result is None for an object that is not a path, and for a file in the trial's own copy of the training's folder.
    """
    if not isinstance(path, (str, os.PathLike)):
        return None
    absolute = os.path.abspath(os.fspath(path))  # noqa: PTH100 - a name with .. must not leave the folder
    if any(absolute.startswith(folder + os.sep) for folder in inside.settings.private):
        return None
    return os.path.join(inside.settings.saves, absolute.lstrip(os.sep).replace(":", "_"))  # noqa: PTH118


def _watch(module: ModuleType, inside: TrialState) -> None:
    for table, choose in ((SAVES, _to_save), (LOADS, _to_load)):
        if module.__name__ in table:
            _watch_function(module, *table[module.__name__], choose, inside)


def _watch_function(
    module: ModuleType, name: str, argument: str, choose: Callable[[Any, TrialState], str | None], inside: TrialState
) -> None:
    original = getattr(module, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def redirect(*arguments: Any, **named: Any) -> Any:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError:
            return original(*arguments, **named)  # raises the training's own error
        place = inside.quietly(choose, bound.arguments.get(argument), inside)
        if place is not None:
            bound.arguments[argument] = place
        return original(*bound.args, **bound.kwargs)

    setattr(module, name, redirect)


def _to_save(path: Any, inside: TrialState) -> str | None:
    place = redirected(path, inside)
    if place is not None:
        inside.guard.check(path, "torch.save")
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
    return place


def _to_load(path: Any, inside: TrialState) -> str | None:
    place = redirected(path, inside)
    return place if place is not None and os.path.exists(place) else None  # noqa: PTH110


WATCHED = dict.fromkeys({**SAVES, **LOADS}, _watch)
