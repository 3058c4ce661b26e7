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
from sawtooth.analysis.findings.queries.calls import operators, recorded_arguments
from sawtooth.analysis.findings.queries.passes import backward_op_ids, first_shape
from sawtooth.analysis.findings.recorded.counted_operations import launched_inside, numel
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.knowledge.dtypes import ITEM_BYTES, dtype_of_type
from sawtooth.analysis.knowledge.kernel_work import product_work

LOOKUP_GRADIENTS = r"^aten::(embedding|_embedding_bag)_dense_backward$"
# Position of the number of table rows among the arguments of each operator.
ROW_COUNT_ARGUMENT = {"aten::embedding_dense_backward": 2, "aten::_embedding_bag_dense_backward": 5}
MIN_TABLES = 8  # With fewer tables (words, positions and a few features of a sample), single lookups are no problem.
# An ``nn.EmbeddingBag`` calls the same operator for its sparse gradient.
SPARSE_GRADIENTS = r"^aten::embedding_sparse_backward$"
SPARSE_ADAM = r"^Optimizer\.step#SparseAdam\.step"
_WAITS_IN_UPDATES = f"""
SELECT t.step, c.call_id FROM named_runtime_calls c JOIN named_cpu_ops a ON a.thread_id = c.thread_id
    AND c.start_ns >= a.start_ns AND c.start_ns < a.start_ns + a.dur_ns
JOIN steps t ON t.device = ? AND t.counted AND c.start_ns >= t.host_start_ns AND c.start_ns < t.host_end_ns
WHERE a.kind = 'annotation' AND regexp_matches(a.name, '{SPARSE_ADAM}') AND regexp_matches(c.name, 'Synchronize') ORDER BY c.call_id"""
LOOKUP_OPERATORS = r"^aten::(embedding|embedding_bag)$"
_LOOKED_UP_TYPES = (
    "SELECT DISTINCT s.input_dims, s.input_types FROM cpu_ops o JOIN signatures s USING (signature_id) "
    "WHERE o.cpu_op_id IN (SELECT unnest(?::BIGINT[])) AND s.input_dims IS NOT NULL AND s.input_types IS NOT NULL"
)
FILLS = ("aten::zero_", "aten::fill_", "aten::zeros")
SUMS = ("aten::add", "aten::add_")


@dataclass(frozen=True)
class TableLookups:
    """The lookups in embedding tables of one shape with dense gradients.

    ``tables`` is the number of tables of ``rows`` rows. ``lookups`` and ``indices`` are numbers per step, over all these tables.
    ``fills`` are the rows of ``RuleContext.work`` that fill the gradients with zeros, and ``sums`` the rows that add gradients of
    one table.
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
        """Number of values in all these tables."""
        return self.tables * self.rows * self.width

    @property
    def row_fill_ns(self) -> float:
        """Mean time of one write of a row's values, in ns."""
        return float(self.fills["dur_ns"].mean()) / self.rows

    @property
    def max_touched_share(self) -> float:
        """Mean share of a table's rows that a step looks up if no index repeats."""
        return self.indices / (self.tables * self.rows)


@once
def table_lookups(context: RuleContext) -> tuple[TableLookups, ...]:
    """Return the lookups with dense gradients in the counted steps, one entry for each shape of tables.

    The result has no tables whose gradient stays dense: weights of a tied output layer, and tables with other operators of the
    backward pass on the gradient.
    """
    return tuple(_lookups(context))


def _lookups(context: RuleContext) -> Iterator[TableLookups]:
    calls = operators(context, LOOKUP_GRADIENTS).frame
    calls = calls[calls["step"].isin(context.work["step"].unique())]
    parameters = parameters_of(context.recording, context.rank.device) if len(calls) else Counter()
    if not parameters:
        return
    operator_names = dict(zip(calls["id"].tolist(), calls["name"].tolist(), strict=True))
    lookups_by_shape: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for op, (shapes, arguments) in recorded_arguments(context, calls["id"].tolist()).items():
        if (size := _table_size(operator_names[op], shapes, arguments)) is not None:
            rows, width, indices = size
            lookups_by_shape.setdefault((rows, width), []).append((op, indices))
    backward = context.work[context.work["gpu_op_id"].isin(backward_op_ids(context))]
    shape = backward["dims"].map(first_shape)
    for (rows, width), lookups in lookups_by_shape.items():
        gradient_rows = backward[shape == (rows, width)]
        has_other_operators = (~gradient_rows["operator"].isin((*FILLS, *SUMS, *ROW_COUNT_ARGUMENT))).any()
        of_shape = parameters.get((rows, width), 0)
        multiplied = max(_linear_weights(context, rows, width), int(_is_multiplied(context, rows, width)))
        tables = of_shape - min(multiplied, max(of_shape - 1, 1))  # A step may multiply with one weight several times.
        if tables <= 0 or has_other_operators:
            continue
        launched = context.work.iloc[context.launches.launched_during(np.array([op for op, _ in lookups], np.int64))]
        fills = launched[launched["operator"].isin(FILLS) & (launched["dims"].map(first_shape) == (rows, width))]
        yield TableLookups(
            rows, width, tables, len(lookups) / context.work_steps, sum(indices for _, indices in lookups) / context.work_steps, fills,
            gradient_rows[gradient_rows["operator"].isin(SUMS)],
        )  # fmt: skip


def _table_size(operator: str, shapes: list[Any], arguments: list[Any]) -> tuple[int, int, int] | None:
    """Return rows and width of a lookup's table and the number of indices, None if not recorded."""
    position = ROW_COUNT_ARGUMENT[operator]
    if len(shapes) < 2 or not first_shape(shapes) or len(arguments) <= position or not str(arguments[position]).isdecimal():
        return None
    return int(arguments[position]), shapes[0][-1], numel(shapes[1])


def _is_multiplied(context: RuleContext, rows: int, width: int) -> bool:
    """Return whether a product has an operand or a result of the size of a whole table."""
    products = context.work[context.work["category"] == "gemm"].drop_duplicates(["flop_operator", "flop_signature_id"])
    for row in products.itertuples():
        work: Any = product_work(row.flop_operator, row.flop_dims, row.flop_strides, "bf16")
        if work is None:
            continue
        sizes = {int(size) for product in work.products for size in (product.m, product.n, product.k)}
        if {rows, width} <= sizes:
            return True
    return False


@dataclass(frozen=True)
class SparseUpdates:
    """The updates of tables with sparse gradients by SparseAdam, one after the other.

    ``tables`` is the number of tables. Several lookups of one table in a step lead to one update. ``rows`` are the rows of
    ``RuleContext.work`` that the updates launch. ``waits`` has the calls with which the host waits for the number of different rows,
    by step.
    """

    tables: float
    rows: pd.DataFrame
    waits: dict[int, list[int]]


@once
def sparse_updates(context: RuleContext) -> SparseUpdates | None:
    """Return the updates by SparseAdam in the counted steps, None without them."""
    gradients = operators(context, SPARSE_GRADIENTS).frame
    gradients = gradients[gradients["step"].isin(context.work["step"].unique())]
    ids = launched_inside(context.recording, context.rank.device, SPARSE_ADAM)
    rows = context.work[context.work["gpu_op_id"].isin(ids)]
    if gradients.empty or rows.empty:
        return None
    waits: dict[int, list[int]] = {}
    for step, call in context.recording.rows(_WAITS_IN_UPDATES, [context.rank.device]):
        waits.setdefault(int(step), []).append(int(call))
    return SparseUpdates(min(len(gradients) / context.work_steps, _looked_up_tables(context)), rows, waits)


def table_bytes(context: RuleContext) -> int:
    """Return the bytes of all tables that the counted steps look up and update."""
    tables = _tables_by_shape(context)
    rows = context.recording.rows(_LOOKED_UP_TYPES, [list(operators(context, LOOKUP_OPERATORS).frame["id"])])
    dtypes = {first_shape(json.loads(dims)): dtype_of_type(json.loads(types)[0]) for dims, types in rows}
    return sum(ITEM_BYTES[dtypes.get(shape) or "fp32"] * numel(list(shape)) * number for shape, number in tables.items())


def _looked_up_tables(context: RuleContext) -> int:
    """Return the number of tables that the counted steps look up and update."""
    return sum(_tables_by_shape(context).values())


@once
def _tables_by_shape(context: RuleContext) -> Counter[tuple[int, ...]]:
    """Return the number of parameters that the counted steps look up and update, by their shape.

    Parameters of one shape that products multiply, such as the weights of ``nn.Linear``, are no tables.
    """
    calls = operators(context, LOOKUP_OPERATORS).frame
    parameters = parameters_of(context.recording, context.rank.device)
    arguments = recorded_arguments(context, calls["id"].tolist())
    shapes = {shape for shape in {first_shape(dims) for dims, _ in arguments.values()} if len(shape) == 2 and parameters[shape]}
    return Counter({shape: max(parameters[shape] - _linear_weights(context, *shape), 1) for shape in shapes})


def _linear_weights(context: RuleContext, rows: int, width: int) -> int:
    """Return the products per step with a transposed weight of this shape, as in ``nn.Linear``."""
    work = context.work
    products = work[work["flop_operator"].isin(("aten::mm", "aten::addmm")) & ~work["gpu_op_id"].isin(backward_op_ids(context))]
    calls = products.drop_duplicates("flop_op_id")
    is_linear = calls["flop_dims"].map(lambda dims: bool(dims) and [*filter(None, dims)][-1:] == [[width, rows]])
    return round(int(is_linear.sum()) / context.work_steps)


@once
def lookups_in_a_row(context: RuleContext) -> list[tuple[int, list[int]]]:
    """Return number of tables and operators of each counted step's lookups in a row."""
    return list(_lookups_in_a_row(context))


def _lookups_in_a_row(context: RuleContext) -> Iterator[tuple[int, list[int]]]:
    calls = operators(context, LOOKUP_OPERATORS).frame
    calls = calls[calls["step"].isin(context.work["step"].unique())]
    if len(calls) < MIN_TABLES * context.work_steps:
        return
    tables = _tables_by_shape(context)
    shapes = {op: dims for op, (dims, _) in recorded_arguments(context, calls["id"].tolist()).items()}
    products = np.sort(context.work.loc[context.work["category"] == "gemm", "flop_op_id"].dropna().to_numpy(np.int64))
    for _, thread_calls in calls.sort_values("id").groupby(["step", "thread_id"]):
        ids = thread_calls["id"].to_numpy(np.int64)
        # Ids are in the order of the starts. A product in between, or another kind of lookup, ends a loop.
        kinds = [(np.searchsorted(products, op), *_kind(shapes.get(op, []))) for op in ids.tolist()]
        start = 0
        for end in range(1, len(ids) + 1):
            if end < len(ids) and kinds[end] == kinds[start]:
                continue
            table_shapes = {tuple(shapes[op][0]) for op in ids[start:end].tolist() if shapes.get(op)}
            if end - start >= MIN_TABLES and sum(tables[shape] for shape in table_shapes) >= end - start:
                yield end - start, context.launches.operators_begun_between(ids[start:end]).tolist()
            start = end


def _kind(dims: list[Any]) -> tuple[Any, ...]:
    """Return the width of a lookup's table and the shape of the indices, empty if not recorded."""
    return (dims[0][-1], tuple(dims[1])) if len(dims) > 1 and dims[0] else ()
