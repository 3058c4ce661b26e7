"""Dtypes of a step's tensors under autocast, by their number of elements.

A trace records the shapes and dtypes of inputs, but not which tensor an operator reads. So the dtype of a tensor under autocast
is that of the latest result with as many elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.knowledge.flops import convolution_output

SPLIT = (1, 2, 3, 4)  # Views of a product's result: queries, keys and values of one, or the halves of a gated layer.


@dataclass
class StepTensors:
    """Results of a step by their number of elements, with the dtype that autocast would give them.

    Values of ``latest`` are the position of the result in the step and whether it has 16 bits.
    """

    latest: dict[int, tuple[int, bool]] = field(default_factory=dict)
    # Of results that an addition of two such tensors may read besides the latest one.
    earlier: dict[int, bool] = field(default_factory=dict)
    widened: set[int] = field(default_factory=set)  # Cast to FP32 for an operator: the gradient is cast back.
    count: int = 0

    def put(self, size: int, half: bool, *, joins: bool = False) -> None:
        """Add a result; ``joins`` is that of two tensors of its size, such as a residual."""
        self.count += 1
        self.latest[size] = self.count, half
        if joins or size not in self.earlier:
            self.earlier[size] = half

    def half(self, size: int) -> bool | None:
        """Return whether the latest result of this size, or a multiple of it, has 16 bits.

        None if there is no such result.
        """
        candidates = [self.latest[size * parts] for parts in SPLIT if size * parts in self.latest]
        return max(candidates)[1] if candidates else None


def result_sizes(row: Any) -> Iterator[int]:
    """Yield the element counts of the results of a product, convolution or attention."""
    dims = row.flop_dims or []
    try:
        if row.flop_operator == "aten::convolution":
            yield math.prod(convolution_output(dims, row.flop_concrete or []) or [0])
        elif row.flop_operator == "aten::convolution_backward":
            yield numel(dims[1])
        elif row.category == "attention":
            yield numel(dims[0])
        else:
            at = int(row.flop_operator in ("aten::addmm", "aten::baddbmm"))
            yield math.prod(dims[at][:-1]) * dims[at + 1][-1]
    except (IndexError, TypeError):
        return
