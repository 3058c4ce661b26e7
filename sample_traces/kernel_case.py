"""One operator to time, with the name that the profiler records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

DEVICE = "cuda"
COLD_BYTES = 150e6  # Inputs rotate over this many bytes, which is well above the 50 MiB L2 cache of an H100 or H200.
MAX_SETS = 12
Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One operator to time.

    `dims` and `dtype` are those of its inputs. `make` builds the call on new random inputs.
    """

    family: str
    operator: str
    dtype: str  # fp32, tf32, bf16, fp16, fp8.
    dims: list[list[int]]
    make: Callable[[], Call]
    extra: dict[str, Any] = field(default_factory=dict)

    def sets(self) -> int:
        """Return the number of input sets to rotate, so that no input is in the L2 cache."""
        size = {"fp32": 4, "tf32": 4, "fp8": 1}.get(self.dtype, 2)
        total = sum(math.prod(shape) for shape in self.dims) * size
        return max(1, min(MAX_SETS, math.ceil(COLD_BYTES / max(total, 1))))


def torch_dtype(dtype: str) -> torch.dtype:
    """Return the dtype of the tensors of a case: TF32 products take FP32 tensors."""
    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}.get(dtype, torch.float32)


def rand(shape: Sequence[int], dtype: str, grad: bool = False) -> Tensor:
    """Return normal random values, because zeros run faster than real data."""
    return torch.randn(*shape, device=DEVICE).to(torch_dtype(dtype)).requires_grad_(grad)


def gradients(forward: Callable[..., Tensor], inputs: list[Tensor]) -> Call:
    """Return the call that computes the gradients of `forward` at `inputs`.

    The forward pass runs once, here.
    """
    out = forward(*inputs)
    grad = torch.randn_like(out)
    trained = [tensor for tensor in inputs if tensor.requires_grad]
    return lambda: torch.autograd.grad(out, trained, grad, retain_graph=True)


def differentiable(
    family: str, operator: str, dtype: str, shapes: list[list[int]], forward: Callable[..., Tensor], **extra: Any
) -> Iterator[Case]:
    """Yield a case for `forward` of random inputs of these shapes, and one for its backward pass."""

    def once() -> Call:
        tensors = [rand(shape, dtype) for shape in shapes]
        return lambda: forward(*tensors)

    yield Case(family, operator, dtype, shapes, once, extra)
    grads = lambda: gradients(forward, [rand(shape, dtype, grad=True) for shape in shapes])  # noqa: E731 - a name for what is built
    yield Case(family, f"{operator}_backward", dtype, [shapes[0], *shapes], grads, extra)
