"""Detection of outermost backward passes and of a DataLoader's batches.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....loop.step_boundary import BACKWARD, BATCH, GRADIENT
from ...in_process.shared import watch

OnEvent = Callable[[str], None]
Undo = Callable[[], None]


def watch_backward(autograd: Any, on_event: OnEvent) -> Undo:
    """Call ``on_event`` after each outermost backward pass; return a function that ends this.

    The patched function is ``_engine_run_backward`` of ``autograd``. Tensor.backward, torch.autograd.backward, torch.autograd.grad and
    torch.func all call it. Compiled code does not contain it, so the patch causes no recompilation. PyTorch before 2.2 does not have it,
    so backward passes are not noticed there.
    """
    if not hasattr(autograd, "_engine_run_backward"):
        return lambda: None

    def patch(run: Callable[..., Any], watchers: list[OnEvent]) -> Callable[..., Any]:
        inside = False

        def noticed(*arguments: Any, **named: Any) -> Any:
            nonlocal inside
            if inside:  # Activation checkpointing runs a nested backward pass.
                return run(*arguments, **named)
            inside = True
            try:
                result = run(*arguments, **named)
            finally:
                inside = False
            for each in tuple(watchers):  # a copy, because a watcher that gives up removes itself from the list
                each(BACKWARD if named.get("accumulate_grad") else GRADIENT)
            return result

        return _not_compiled(noticed)

    return watch(autograd, "_engine_run_backward", on_event, patch)


def watch_batches(loaders: Any, on_event: OnEvent) -> Undo:
    """Call ``on_event`` after each DataLoader batch; ``loaders`` is torch.utils.data.dataloader."""

    def patch(following: Callable[[Any], Any], watchers: list[OnEvent]) -> Callable[[Any], Any]:
        def noticed(iterator: Any) -> Any:
            batch = following(iterator)
            for each in tuple(watchers):
                each(BATCH)
            return batch

        return _not_compiled(noticed)

    return watch(loaders._BaseDataLoaderIter, "__next__", on_event, patch)


def _not_compiled(noticed: Any) -> Any:
    noticed._torchdynamo_disable = True  # torch.compile does not trace the original function either.
    return noticed
