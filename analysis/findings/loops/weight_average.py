"""An average of the weights that a loop updates tensor by tensor, after the optimizer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.passes import first_shape, in_backward
from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer
from sawtooth.analysis.findings.recorded.parameters import parameters_of

# How often each operator reads or writes a value of a tensor.
PASSES = {
    "aten::lerp": 3, "aten::lerp_": 3, "aten::add": 3, "aten::add_": 3, "aten::sub": 3, "aten::sub_": 3, "aten::mul": 2, "aten::mul_": 2,
    "aten::copy_": 2,
}  # fmt: skip
# The operators of one update, besides copies. Weight decay (mul_), a gradient step (mul and sub_, or add_) and a momentum
# (mul_, add_ and add_) are not among them.
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
def averaging(context: RuleContext) -> pd.DataFrame:
    """Return the rows of ``RuleContext.work`` that update an average of the weights tensor by tensor.

    They follow an optimizer's launches, before the next forward or backward pass. For each shape of a parameter, their operators
    are those of one kind of update. The column ``updates`` has the number of averaged tensors that a row stands for, so that its
    sum is the number of updates.
    """
    work = context.work
    named = work["operator"].isin(PASSES) & (work["kind"] == "kernel")
    updated = launched_by_optimizer(context.recording, context.rank.device)
    parameters = parameters_of(context.recording, context.rank.device) if named.any() and len(updated) else None
    if not parameters:
        return work.iloc[:0].assign(updates=0.0)
    rows = work[named & work["gpu_op_id"].isin(_after_updates(context, updated))]
    shape = rows["dims"].map(_averaged_shape)
    rows = rows[shape.isin(set(parameters))]
    parts = []
    for _, part in rows.groupby(shape[rows.index], sort=False):
        counts = Counter(part["operator"].tolist())
        del counts["aten::copy_"]
        if (updates := _updates(counts)) > 0:
            parts.append(part.assign(updates=updates / len(part)))
    return pd.concat(parts).sort_values("start_ns") if parts else rows.iloc[:0].assign(updates=0.0)


def _after_updates(context: RuleContext, updated: np.ndarray) -> np.ndarray:
    """Return the gpu_op_ids between an optimizer's launches and the next product or backward pass."""
    work = context.work.sort_values("start_ns", kind="stable")
    ids = work["gpu_op_id"]
    of_optimizer = ids.isin(updated).to_numpy(bool)
    of_model = (work["category"].isin(PRODUCTS) | ids.isin(in_backward(context))).to_numpy(bool) & ~of_optimizer
    at = np.arange(len(work))
    last_update = np.maximum.accumulate(np.where(of_optimizer, at, -1))
    last_of_model = np.maximum.accumulate(np.where(of_model, at, -1))
    return ids.to_numpy(np.int64)[(last_update > last_of_model) & ~of_optimizer]


def _averaged_shape(dims: list[Any] | None) -> tuple[int, ...]:
    """Return the shape of the first input; empty if the second is a tensor of another shape."""
    shape = first_shape(dims)
    second = dims[1] if dims is not None and len(dims) > 1 else []
    return shape if not second or tuple(second) == shape else ()


def _updates(counts: Counter[str]) -> int:
    """Return how many updates these operators are; 0 if they are no whole number of updates of one kind."""
    for update in UPDATES:
        times = counts[next(iter(update))] // next(iter(update.values()))
        if times and counts == Counter({operator: count * times for operator, count in update.items()}):
            return times
    return 0
