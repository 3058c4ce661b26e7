"""Notices the end of each outermost backward pass and each batch of a DataLoader. Standard library only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ....loop.sign import BACKWARD, BATCH, GRADIENT

Happens = Callable[[str], None]
Undo = Callable[[], None]


def watch_backward(autograd: Any, happens: Happens) -> Undo:
    """Call ``happens`` after each outermost pass through the module torch.autograd; return what ends that.

    Tensor.backward, torch.autograd.backward and torch.autograd.grad all run this function, torch.func through the last. Compiled code does not
    contain it, so that nothing is compiled again. PyTorch before 2.2 has none: its passes are not noticed.
    """
    run = getattr(autograd, "_engine_run_backward", None)
    if run is None:
        return lambda: None
    inside = False

    @functools.wraps(run)
    def noticed(*arguments: Any, **named: Any) -> Any:
        nonlocal inside
        if inside:  # a checkpoint runs its part of the pass within the pass
            return run(*arguments, **named)
        inside = True
        try:
            result = run(*arguments, **named)
        finally:
            inside = False
        happens(BACKWARD if named.get("accumulate_grad") else GRADIENT)
        return result

    return _replace(autograd, "_engine_run_backward", run, noticed)


def watch_batches(loaders: Any, happens: Happens) -> Undo:
    """Call ``happens`` after each batch that a DataLoader gives; ``loaders`` is the module torch.utils.data.dataloader."""
    iterator = loaders._BaseDataLoaderIter
    following = iterator.__next__

    @functools.wraps(following)
    def noticed(its: Any) -> Any:
        batch = following(its)
        happens(BATCH)
        return batch

    return _replace(iterator, "__next__", following, noticed)


def _replace(owner: Any, name: str, before: Any, by: Any) -> Undo:
    by._torchdynamo_disable = True  # the compiler leaves it as it leaves PyTorch's own function
    setattr(owner, name, by)

    def undo() -> None:
        if getattr(owner, name) is by:  # whoever replaced it since then has it
            setattr(owner, name, before)

    return undo
