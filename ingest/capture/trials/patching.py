"""Patches of constructors that change arguments. If a changed call fails, the original call is made.

Standard library only.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .trial_state import TrialState

OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError")


def change_arguments(
    owner: Any,
    state: TrialState,
    change: Callable[[Any, dict[str, Any]], list[str]],
    after: Callable[[Any, dict[str, Any]], None] = lambda instance, arguments: None,
) -> None:
    """Patch ``owner.__init__`` so that ``change(object, arguments)`` may replace arguments.

    ``change`` returns the slugs of the changes that it made. ``after`` is called with the constructed object. If the constructor fails with the
    changed arguments, it is called with the original arguments, and the changes are noted as refused. Out-of-memory errors are raised.
    """
    original = owner.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def construct(instance: Any, /, *positional: Any, **named: Any) -> None:
        bound = _bound(signature, instance, positional, named)
        if bound is None:
            original(instance, *positional, **named)  # Raises the training's own error.
            return
        changed = dict(bound.arguments)
        slugs: list[str] = state.call_safely(change, instance, changed) or []
        if slugs:
            bound.arguments.update(changed)
            try:
                original(*bound.args, **bound.kwargs)
            except Exception as error:
                if type(error).__name__ in OUT_OF_MEMORY:
                    raise
                for slug in slugs:
                    state.notes.note_refusal(slug, f"{owner.__name__} refused it: {error}"[:300])
                original(instance, *positional, **named)
        else:
            original(instance, *positional, **named)
        state.call_safely(after, instance, changed)

    owner.__init__ = construct


def _bound(signature: inspect.Signature, instance: Any, positional: Any, named: Any) -> inspect.BoundArguments | None:
    try:
        bound = signature.bind(instance, *positional, **named)
    except TypeError:
        return None
    bound.apply_defaults()
    return bound
