"""Dtypes of a step's tensors under autocast, by their number of elements.

A trace records the shapes and dtypes of an operator's inputs, but not the operator that made them. So this module takes an input for
the latest result with as many elements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.knowledge.flops import convolution_output

VIEW_COUNTS = (1, 2, 3, 4)  # Numbers of equal views of a product's result, such as queries, keys and values.


@dataclass
class StepTensors:
    """Results of a step by their number of elements, with the dtype that autocast would give them.

    ``latest`` has the position of the latest result in the step, and whether it has 16 bits.
    """

    latest: dict[int, tuple[int, bool]] = field(default_factory=dict)
    # Whether an older result of a size has 16 bits. A sum of two tensors, such as a residual, may read the older result as well.
    earlier: dict[int, bool] = field(default_factory=dict)
    cast_to_fp32: set[int] = field(default_factory=set)  # Sizes of inputs cast to FP32, whose gradient is cast back.
    count: int = 0

    def add(self, size: int, *, in_16_bits: bool, joins: bool = False) -> None:
        """Add a result. ``joins`` marks the sum of two tensors of this size, such as a residual."""
        self.count += 1
        self.latest[size] = self.count, in_16_bits
        if joins or size not in self.earlier:
            self.earlier[size] = in_16_bits

    def is_in_16_bits(self, size: int) -> bool | None:
        """Return whether the latest result of ``size`` elements has 16 bits, None if there is no such result.

        A view of a larger result counts as a result.
        """
        candidates = [self.latest[size * views] for views in VIEW_COUNTS if size * views in self.latest]
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
            first = int(row.flop_operator in ("aten::addmm", "aten::baddbmm"))
            yield math.prod(dims[first][:-1]) * dims[first + 1][-1]
    except (IndexError, TypeError):
        return
