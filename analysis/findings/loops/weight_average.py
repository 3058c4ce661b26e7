"""An average of the weights that a loop updates tensor by tensor, after the optimizer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.passes import backward_op_ids, first_shape
from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer
from sawtooth.analysis.findings.recorded.parameters import parameters_of

# Number of reads and writes of each tensor element.
ELEMENT_ACCESSES = {
    "aten::lerp": 3, "aten::lerp_": 3, "aten::add": 3, "aten::add_": 3, "aten::sub": 3, "aten::sub_": 3, "aten::mul": 2, "aten::mul_": 2,
    "aten::copy_": 2,
}  # fmt: skip
# The operators of one update of an average, without copies. Weight decay (mul_), a gradient step (mul and sub_, or add_) and a
# momentum (mul_, add_ and add_) use other operators.
UPDATES: tuple[dict[str, int], ...] = (
    {"aten::lerp_": 1},
    {"aten::lerp": 1},
    {"aten::mul_": 1, "aten::add_": 1},
    {"aten::mul_": 1, "aten::add": 1},
    {"aten::mul_": 1, "aten::mul": 1, "aten::add_": 1},
    {"aten::mul": 2, "aten::add": 1},
    {"aten::sub": 1, "aten::add_": 1},
    {"aten::sub": 1, "aten::mul": 1, "aten::add_": 1},
    {"aten::sub": 1, "aten::mul": 1, "aten::sub_": 1},
)
PRODUCTS = ("gemm", "conv", "attention")


@once
def averaging_kernels(context: RuleContext) -> pd.DataFrame:
    """Return the rows of ``RuleContext.work`` that update an average of the weights tensor by tensor.

    These rows lie between an optimizer's launches and the next forward or backward pass. For each shape of a parameter, the operators
    are those of one kind of update. The sum of the column ``updates`` is the number of updated tensors.
    """
    work = context.work
    may_average = work["operator"].isin(ELEMENT_ACCESSES) & (work["kind"] == "kernel")
    optimizer_ids = launched_by_optimizer(context.recording, context.rank.device)
    parameters = parameters_of(context.recording, context.rank.device) if may_average.any() and len(optimizer_ids) else None
    if not parameters:
        return work.iloc[:0].assign(updates=0.0)
    rows = work[may_average & work["gpu_op_id"].isin(_after_updates(context, optimizer_ids))]
    shape = rows["dims"].map(_averaged_shape)
    rows = rows[shape.isin(set(parameters))]
    averaging_rows = []
    for _, shape_rows in rows.groupby(shape[rows.index], sort=False):
        counts = Counter(shape_rows["operator"].tolist())
        del counts["aten::copy_"]
        if (updates := _updates(counts)) > 0:
            averaging_rows.append(shape_rows.assign(updates=updates / len(shape_rows)))
    return pd.concat(averaging_rows).sort_values("start_ns") if averaging_rows else rows.iloc[:0].assign(updates=0.0)


def _after_updates(context: RuleContext, optimizer_ids: np.ndarray) -> np.ndarray:
    """Return the gpu_op_ids between an optimizer's launches and the next product or backward pass."""
    work = context.work.sort_values("start_ns", kind="stable")
    ids = work["gpu_op_id"]
    is_optimizer = ids.isin(optimizer_ids).to_numpy(bool)
    is_model = (work["category"].isin(PRODUCTS) | ids.isin(backward_op_ids(context))).to_numpy(bool) & ~is_optimizer
    row = np.arange(len(work))
    last_optimizer_row = np.maximum.accumulate(np.where(is_optimizer, row, -1))
    last_model_row = np.maximum.accumulate(np.where(is_model, row, -1))
    return ids.to_numpy(np.int64)[(last_optimizer_row > last_model_row) & ~is_optimizer]


def _averaged_shape(dims: list[Any] | None) -> tuple[int, ...]:
    """Return the shape of the first input, empty if the second input is a tensor of another shape."""
    shape = first_shape(dims)
    second = dims[1] if dims is not None and len(dims) > 1 else []
    return shape if not second or tuple(second) == shape else ()


def _updates(counts: Counter[str]) -> int:
    """Return the number of updates with these operators, 0 unless all belong to one kind of update."""
    for update in UPDATES:
        times = counts[next(iter(update))] // next(iter(update.values()))
        if times and counts == Counter({operator: count * times for operator, count in update.items()}):
            return times
    return 0
