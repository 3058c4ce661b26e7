"""Lookups in embedding tables, each with a dense gradient that is as large as the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import first_shape, in_backward
from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.knowledge.kernel_work import product_work

LOOKUPS = r"^aten::(embedding|_embedding_bag)_dense_backward$"
# Position of the number of rows among the arguments of each operator.
ROWS_AT = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
FILLS = ("aten::zero_", "aten::fill_", "aten::zeros")
SUMS = ("aten::add", "aten::add_")
_SIGNATURES = (
    "SELECT o.cpu_op_id, s.input_dims, s.concrete_inputs FROM cpu_ops o JOIN signatures s USING (signature_id) "
    "WHERE o.cpu_op_id IN (SELECT unnest(?::BIGINT[]))"
)


@dataclass(frozen=True)
class TableLookups:
    """The lookups in the embedding tables of one shape, whose gradients are dense.

    ``tables`` is their number. ``lookups`` and ``indices`` are per step, over all of them. ``fills`` are the rows of
    ``RuleContext.work`` that fill the gradients with zeros, ``sums`` those that add gradients of one table.
    """

    rows: int
    width: int
    tables: int
    lookups: float
    indices: float
    fills: pd.DataFrame
    sums: pd.DataFrame

    @property
    def values(self) -> int:
        """Values of all these tables."""
        return self.tables * self.rows * self.width

    @property
    def touched(self) -> float:
        """The largest possible share of a table's rows that a step looks up, on average."""
        return self.indices / (self.tables * self.rows)


@once
def table_lookups(context: RuleContext) -> tuple[TableLookups, ...]:
    """Return the lookups with dense gradients in the counted steps, one entry for each shape of tables.

    Tables whose gradient is dense for another reason are left out: they are the weight of a tied output layer, too, or other
    operators of the backward pass work on their gradient.
    """
    return tuple(_lookups(context))


def _lookups(context: RuleContext) -> Iterator[TableLookups]:
    called = operators(context, LOOKUPS)
    frame = called.frame[called.frame["step"].isin(context.work["step"].unique())]
    parameters = parameters_of(context.recording, context.rank.device) if len(frame) else Counter()
    if not parameters:
        return
    name_of = dict(zip(frame["id"].tolist(), frame["name"].tolist(), strict=True))
    of_shape: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for op, dims, concrete in context.recording.rows(_SIGNATURES, [frame["id"].tolist()]):
        if (size := _table(name_of[op], dims, concrete)) is not None:
            rows, width, indices = size
            of_shape.setdefault((rows, width), []).append((int(op), indices))
    backward = context.work[context.work["gpu_op_id"].isin(in_backward(context))]
    shape = backward["dims"].map(first_shape)
    for (rows, width), lookups in of_shape.items():
        of_table = backward[shape == (rows, width)]
        other = ~of_table["operator"].isin((*FILLS, *SUMS, *ROWS_AT))
        tables = parameters.get((rows, width), 0) - _multiplied(context, rows, width)
        if tables <= 0 or other.any():
            continue
        inside = context.work.iloc[context.launches.during(np.array([op for op, _ in lookups], np.int64))]
        fills = inside[inside["operator"].isin(FILLS) & (inside["dims"].map(first_shape) == (rows, width))]
        yield TableLookups(
            rows, width, tables, len(lookups) / context.work_steps, sum(indices for _, indices in lookups) / context.work_steps, fills,
            of_table[of_table["operator"].isin(SUMS)],
        )  # fmt: skip


def _table(name: str, dims: str | None, concrete: str | None) -> tuple[int, int, int] | None:
    """Return rows and width of a lookup's table and the number of indices; None if not recorded."""
    shapes, arguments = (json.loads(text) if text else [] for text in (dims, concrete))
    at = ROWS_AT[name]
    if len(shapes) < 2 or not first_shape(shapes) or len(arguments) <= at or not str(arguments[at]).isdecimal():
        return None
    return int(arguments[at]), shapes[0][-1], numel(shapes[1])


def _multiplied(context: RuleContext, rows: int, width: int) -> bool:
    """Return whether a product has an operand or a result of the size of a whole table."""
    products = context.work[context.work["category"] == "gemm"].drop_duplicates(["flop_operator", "flop_signature_id"])
    for row in products.itertuples():
        work: Any = product_work(row.flop_operator, row.flop_dims, row.flop_strides, "bf16")
        sizes = (
            {int(size) for product in work.products for size in (product.m, product.n, product.k)}
            if work is not None
            else set()
        )
        if {rows, width} <= sizes:
            return True
    return False
