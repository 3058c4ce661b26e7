"""Dtypes of a step's tensors under autocast, by their number of elements.

A trace records the shapes and dtypes of an operator's inputs, but not the operator that made them. So an input is assumed to be
the latest result with the same number of elements, and gets the dtype of that result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.knowledge.flops import convolution_output

SPLIT = (1, 2, 3, 4)  # Numbers of views into which a product's result is split, such as queries, keys and values.


@dataclass
class StepTensors:
    """Results of a step by their number of elements, with the dtype that autocast would give them.

    ``latest`` has the position of the latest result in the step, and whether it has 16 bits.
    """

    latest: dict[int, tuple[int, bool]] = field(default_factory=dict)
    # The dtype of an older result of this size. An addition of two tensors (a residual) may read both.
    earlier: dict[int, bool] = field(default_factory=dict)
    widened: set[int] = field(default_factory=set)  # Sizes cast to FP32 for an operator, so that the gradient is cast back.
    count: int = 0

    def put(self, size: int, half: bool, *, joins: bool = False) -> None:
        """Add a result; ``joins`` marks the sum of two tensors of this size, such as a residual."""
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
