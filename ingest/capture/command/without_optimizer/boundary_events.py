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

    Tensor.backward, torch.autograd.backward, torch.autograd.grad and torch.func all call ``autograd._engine_run_backward``, which is patched.
    Compiled code does not contain this function, so the patch causes no recompilation. PyTorch before 2.2 does not have the function, so
    backward passes are not noticed there.
    """
    if not hasattr(autograd, "_engine_run_backward"):
        return lambda: None

    def patch(run: Callable[..., Any], watchers: list[OnEvent]) -> Callable[..., Any]:
        inside = False

        def run_and_notify(*arguments: Any, **named: Any) -> Any:
            nonlocal inside
            if inside:  # Activation checkpointing runs a nested backward pass.
                return run(*arguments, **named)
            inside = True
            try:
                result = run(*arguments, **named)
            finally:
                inside = False
            for notify in tuple(watchers):  # A copy, because a watcher that gives up removes itself from the list.
                notify(BACKWARD if named.get("accumulate_grad") else GRADIENT)
            return result

        return _not_compiled(run_and_notify)

    return watch(autograd, "_engine_run_backward", on_event, patch)


def watch_batches(loaders: Any, on_event: OnEvent) -> Undo:
    """Call ``on_event`` after each DataLoader batch; ``loaders`` is torch.utils.data.dataloader."""

    def patch(next_batch: Callable[[Any], Any], watchers: list[OnEvent]) -> Callable[[Any], Any]:
        def next_batch_and_notify(iterator: Any) -> Any:
            batch = next_batch(iterator)
            for notify in tuple(watchers):
                notify(BATCH)
            return batch

        return _not_compiled(next_batch_and_notify)

    return watch(loaders._BaseDataLoaderIter, "__next__", on_event, patch)


def _not_compiled(function: Any) -> Any:
    function._torchdynamo_disable = True  # torch.compile does not trace the original function either.
    return function
