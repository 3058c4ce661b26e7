"""Classes of GPU operations: category, tensor-core use, owner and operator.

Each distinct combination of inputs is classified once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.columns import categorical
from sawtooth.analysis.derive.events import GPU_KINDS, TraceEvents
from sawtooth.analysis.distinct_rows import distinct_rows
from sawtooth.analysis.knowledge.kernel_names import classify
from sawtooth.analysis.knowledge.owners import OWNER_KEYS, owner_of

I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Signature:
    """Inputs of an operator as recorded: shapes, dtypes and scalars, None where not recorded."""

    dims: list[object] | None
    types: list[str] | None
    strides: list[object] | None
    concrete: list[str] | None


class Signatures:
    """Distinct operator inputs by signature id.

    A signature is decoded only when it is read, because few operators launch kernels.
    """

    def __init__(self, rows: list[tuple[str | None, ...]]) -> None:
        self._rows = rows

    def __getitem__(self, signature_id: int) -> Signature:
        return Signature(*(msgspec.json.decode(cell) if cell else None for cell in self._rows[signature_id]))


def load_signatures(con: duckdb.DuckDBPyConnection) -> Signatures:
    """Read the recording's distinct operator inputs, indexed by signature id."""
    rows = con.execute(
        "SELECT input_dims, input_types, input_strides, concrete_inputs FROM signatures ORDER BY signature_id"
    ).fetchall()
    return Signatures(rows)


@dataclass(frozen=True)
class Classes:
    """The class of each GPU operation, aligned with gpu_op_id.

    ``operator`` is the innermost operator (not annotation) around the launch, -1 if there is none. ``owner`` indexes owners.OWNERS.
    ``table`` has one row per distinct combination of name, operator_name, signature, category, tensor_cores, owner and reason.
    ``row`` is each operation's row in ``table``.
    """

    operator: I64
    owner: NDArray[np.int8]
    row: I64
    table: pd.DataFrame

    def among(self, column: str, values: Sequence[str]) -> NDArray[np.bool_]:
        """Return, for each operation, whether its value in ``column`` is one of ``values``."""
        return np.asarray(self.table[column].isin(values), bool)[self.row]

    def column(self, name: str) -> pd.Categorical:
        """Return a text column with one value for each operation."""
        values = pd.Categorical(self.table[name])
        return categorical(values.codes[self.row], values.categories.tolist())


class AllClasses:
    """The classes of all parts of a recording, collected part by part."""

    def __init__(self) -> None:
        self._tables: list[pd.DataFrame] = []
        self._names: list[NDArray[np.int32]] = []
        self._owners: list[NDArray[np.int8]] = []

    def add(self, classes: Classes, names: NDArray[np.int32], is_counted: NDArray[np.bool_]) -> None:
        """Add the operations of ``classes`` that ``is_counted`` marks.

        ``names`` are the name ids of the operations.
        """
        self._tables.append(classes.table)
        self._names.append(names[is_counted])
        self._owners.append(classes.owner[is_counted])

    def table(self) -> pd.DataFrame:
        """Return ``Classes.table`` of all parts."""
        return self._tables[0] if len(self._tables) == 1 else pd.concat(self._tables, ignore_index=True).drop_duplicates()

    def exceptions(self) -> tuple[I64, NDArray[np.int8]]:
        """Return the operations whose owner is not the usual owner of their name, and the owner of each.

        The usual owner of a name is the alphabetically first owner among its operations.
        """
        table = self.table()
        first: dict[int, str] = {}
        for name, owner_key in zip(table["name"].tolist(), table["owner"].tolist(), strict=True):
            first[name] = min(owner_key, first.get(name, owner_key))
        usual_owner = np.zeros(max(first, default=0) + 1, np.int8)
        usual_owner[list(first)] = [OWNER_KEYS.index(owner_key) for owner_key in first.values()]
        names, owners = np.concatenate(self._names), np.concatenate(self._owners)
        rows = np.flatnonzero(owners != usual_owner[names])
        return rows, owners[rows]


def innermost_operator(events: TraceEvents, start_at: I64) -> I64:
    """Return, for each cpu_op_id, the nearest operator: itself or an ancestor; -1 if there is none."""
    current = start_at.copy()
    while True:
        climb = (
            (current >= 0) & events.ops.annotation[np.maximum(current, 0)] if len(events.ops) else np.zeros(len(current), bool)
        )
        if not climb.any():
            return current
        current[climb] = events.ops.parent[current[climb]]


def classify_operations(events: TraceEvents, signatures: Signatures, vendor: str | None, compute_major: int | None) -> Classes:
    """Classify every GPU operation of ``events``."""
    operator = innermost_operator(events, events.gpu.cpu_op)
    has_operator = operator >= 0
    at = np.maximum(operator, 0)
    op_name = np.where(has_operator, events.ops.name[at] if len(events.ops) else -1, -1)
    signature = np.where(has_operator, events.ops.signature[at] if len(events.ops) else -1, -1)
    keys = np.stack(
        [
            events.gpu.kind.astype(np.int64),
            events.gpu.name.astype(np.int64),
            op_name.astype(np.int64),
            signature.astype(np.int64),
        ]
    )
    first, row = distinct_rows(*keys)
    distinct = keys[:, first]
    rows = []
    for kind, name, op, sig in distinct.T:
        inputs = signatures[sig] if sig >= 0 else Signature(None, None, None, None)
        kernel_class = classify(
            kernel_name=events.names[name],
            kind=GPU_KINDS[kind],
            op_name=events.names[op] if op >= 0 else None,
            input_types=inputs.types,
            input_dims=inputs.dims,
            vendor=vendor,
            compute_major=compute_major,
        )
        owner_key = owner_of(kernel_class.category, kernel_class.tensor_cores, GPU_KINDS[kind])
        inputs_of = (name, op if op >= 0 else None, sig if sig >= 0 else None)
        rows.append((*inputs_of, kernel_class.category, kernel_class.tensor_cores, owner_key, kernel_class.reason))
    columns = ["name", "operator_name", "signature", "category", "tensor_cores", "owner", "reason"]
    table = pd.DataFrame(rows, columns=columns)
    row = row.reshape(-1).astype(np.int64)
    owner = np.array([OWNER_KEYS.index(key) for key in table["owner"]], np.int8)
    return Classes(operator=operator, owner=owner[row], row=row, table=table)
