"""Make batches of other sizes from an example batch.

Functions get ``torch`` as an argument, because importing this module must not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def tensors_of(torch: Any, value: Any) -> Iterator[Any]:
    """Yield the tensors of a batch, inside its dicts, lists and tuples."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_of(torch, part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_of(torch, part)


def sample_count(torch: Any, batch: Any) -> int | None:
    """Return the length of the first dimension of the first tensor; None if no tensor has dimensions."""
    return next((int(tensor.shape[0]) for tensor in tensors_of(torch, batch) if tensor.dim()), None)


def resized(torch: Any, value: Any, example_size: int, size: int) -> Any:
    """Return the example ``value`` with ``size`` samples instead of ``example_size``, repeated or cut."""
    if isinstance(value, torch.Tensor):
        if not value.dim() or value.shape[0] != example_size or size == example_size:
            return value
        samples = value.index_select(0, torch.arange(size, device=value.device) % example_size)
        return samples.pin_memory() if value.device.type == "cpu" and value.is_pinned() else samples
    if isinstance(value, Mapping):
        parts = {key: resized(torch, part, example_size, size) for key, part in value.items()}
        try:
            return type(value)(parts)  # type: ignore[call-arg]
        except TypeError:  # A defaultdict, for example, expects the factory of its values first.
            return parts
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(resized(torch, part, example_size, size) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(resized(torch, part, example_size, size) for part in value)
    return value
