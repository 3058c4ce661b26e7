"""GPU operations of the counted steps with the columns that rules need.

The columns include operator, shapes, dtypes, category and FLOPs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.findings.model import Row
from sawtooth.analysis.findings.recorded.interval_sql import launches_within
from sawtooth.analysis.intervals import union
from sawtooth.analysis.knowledge.dtypes import SPARSE_KERNEL, has_sparse_operand
from sawtooth.analysis.knowledge.flops import peak_dtype
from sawtooth.analysis.store.library import Recording

# At least the replayed operations. Further steps of a huge trace would only repeat these operations.
USUAL_OPERATIONS = 60_000
# In traces with large steps, ``step_work`` reads more operations until there are MIN_STEPS steps, as in the replay.
MAX_OPERATIONS, MIN_STEPS = 150_000, 6
MAX_EVIDENCE = 6  # Groups of operators that a finding names.
OPTIMIZER_STEP = r"^Optimizer\.step#"
COMPLEX_KERNEL = "c10::complex<"
# Rows with equal values in all these columns are launches of the same kernel on the same shapes.
SAME_LAUNCH = (
    "kernel",
    "kind",
    "category",
    "tensor_cores",
    "operator",
    "signature_id",
    "flop_operator",
    "flop_signature_id",
)
SPARSE = re.compile(SPARSE_KERNEL)
AUTOGRAD_NODE = "autograd::engine::"  # Prefix of the operator names in a backward pass.

_WORK = """
    WITH chosen AS (
        SELECT device, step FROM (
            SELECT *, sum(gpu_ops) OVER (ORDER BY step) - gpu_ops AS before, row_number() OVER (ORDER BY step) AS place FROM steps WHERE counted AND device = ?)
        WHERE before < ? OR (place <= ? AND before < ?))
    SELECT g.gpu_op_id, g.start_ns, g.start_ns + g.dur_ns AS end_ns, g.dur_ns, g.stream, g.kind, g.name_id AS kernel,
        coalesce(g.grid_x::DOUBLE * g.grid_y * g.grid_z, 0) AS blocks, coalesce(g.block_x::DOUBLE * g.block_y * g.block_z, 0) AS block_threads, w.step, w.category, w.tensor_cores,
        o.cpu_op_id, coalesce(o.name_id, -1) AS operator, o.signature_id, f.cpu_op_id AS flop_op_id, coalesce(f.name_id, -1) AS flop_operator,
        f.signature_id AS flop_signature_id
    FROM gpu_ops g JOIN gpu_op_steps w USING (gpu_op_id) JOIN chosen s ON s.device = g.device AND s.step = w.step
        LEFT JOIN cpu_ops o ON o.cpu_op_id = g.cpu_op_id LEFT JOIN cpu_ops f ON f.cpu_op_id = w.flop_op_id
    ORDER BY g.start_ns, g.gpu_op_id"""


def step_work(recording: Recording, device: int) -> pd.DataFrame:
    """Return one row per GPU operation of the first counted steps of ``device``, in order of start.

    The frame has about USUAL_OPERATIONS rows. The columns are gpu_op_id, start_ns, end_ns, dur_ns, stream, kind, kernel, blocks (of the grid) and
    block_threads (0 if not recorded), step, category, tensor_cores, cpu_op_id, operator, dims, types, concrete, strides,
    flop_op_id, flop_operator, flop_dims, flop_types, flop_concrete, flop_strides, flops. Dims, types, concrete and strides
    are decoded lists, None if not recorded. ``flops`` are the operator's FLOPs, divided among its kernels by their time, NaN
    if unknown. ``launch_kind`` is one number for all rows that are equal in SAME_LAUNCH, ``example`` the first of these rows.
    """
    columns = recording.objects(_WORK, [device, USUAL_OPERATIONS, MIN_STEPS, MAX_OPERATIONS])
    texts = recording.once(_texts)
    columns |= {
        name: pd.Series(texts[columns[name].to_numpy()], dtype=object) for name in ("kernel", "operator", "flop_operator")
    }
    work = pd.DataFrame(columns)
    rows = recording.rows(
        "SELECT signature_id, input_dims, input_types, concrete_inputs, input_strides FROM signatures ORDER BY signature_id"
    )
    launching = set(work["signature_id"].dropna()) | set(work["flop_signature_id"].dropna())  # Few operators launch kernels.
    inputs = {int(i): tuple(msgspec.json.decode(c) if c else None for c in cells) for i, *cells in rows if i in launching}
    for column, prefix in (("signature_id", ""), ("flop_signature_id", "flop_")):
        ids = work[column].astype("Int64")  # Iterating over a pandas integer column is slow.
        signatures = [inputs.get(s) for s in ids.fillna(-1).to_numpy(np.int64).tolist()]
        for place, name in enumerate(("dims", "types", "concrete", "strides")):
            work[f"{prefix}{name}"] = pd.Series([f[place] if f else None for f in signatures], dtype=object)
    flops = recording.frame(
        "SELECT name AS flop_operator, signature_id AS flop_signature_id, max(flops / gpu_calls) AS each FROM named_operators "
        "WHERE flops IS NOT NULL GROUP BY ALL"
    )
    work = work.merge(flops, on=["flop_operator", "flop_signature_id"], how="left")
    group_ns = work.groupby("flop_op_id")["dur_ns"].transform("sum")
    launch_kind = work.groupby(list(SAME_LAUNCH), dropna=False, sort=False).ngroup()
    work = work.assign(flops=work["each"] * work["dur_ns"] / group_ns, launch_kind=launch_kind).drop(columns="each")
    # The first row of each number; the numbers ascend in this order.
    examples = np.fromiter(work.drop_duplicates("launch_kind").itertuples(), object)
    work["example"] = examples[launch_kind.to_numpy()]
    # pandas stores each added column separately. A copy joins them, which makes the selection of rows several times faster.
    return work.copy()


def _texts(recording: Recording) -> NDArray[np.object_]:
    """Return the text of each name id, followed by one entry for "no name"."""
    rows = recording.rows("SELECT name_id, name FROM names")
    texts = np.full(max((name_id for name_id, _ in rows), default=-1) + 2, np.nan, object)
    texts[[name_id for name_id, _ in rows]] = [name for _, name in rows]
    return texts


def product_dtype(row: Any) -> str | None:
    """Return the dtype in which a row of ``step_work`` multiplies.

    None if it is not a product, if an operand is sparse, or if the dtype is not recorded.
    """
    operator = row.flop_operator
    if not isinstance(operator, str) or has_sparse_operand(operator, row.flop_strides) or SPARSE.search(row.kernel):
        return None
    return peak_dtype(operator, row.flop_types, row.tensor_cores)


def launched_inside(recording: Recording, device: int, pattern: str) -> NDArray[np.int64]:
    """Return the gpu_op_ids launched while an annotation or operator with a matching name was open."""
    return recording.once(_launched_inside, device, pattern)


def _launched_inside(recording: Recording, device: int, pattern: str) -> NDArray[np.int64]:
    names = recording.named(pattern)
    if not names:
        return np.empty(0, np.int64)
    intervals = (
        "(SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM cpu_ops WHERE name_id IN (SELECT unnest($2::INTEGER[])))"
    )
    columns = recording.objects(
        f"SELECT gpu_op_id FROM gpu_ops JOIN ({launches_within(intervals)}) USING (call_id) WHERE device = $1", [device, names]
    )
    return columns["gpu_op_id"].to_numpy(np.int64)


def launched_by_optimizer(recording: Recording, device: int, pattern: str = OPTIMIZER_STEP) -> NDArray[np.int64]:
    """Return the gpu_op_ids that the optimizer itself launched, inside annotations whose name matches.

    An optimizer whose ``step`` gets a closure runs the forward and backward pass first. So launches before the end of the last
    autograd node belong to the model. The result has no launches of an annotation without such a node, because the recording ended
    before the node.
    """
    return recording.once(_launched_by_optimizer, device, pattern)


def _launched_by_optimizer(recording: Recording, device: int, pattern: str) -> NDArray[np.int64]:
    names = recording.named(pattern)
    if not names:
        return np.empty(0, np.int64)
    columns = recording.objects(
        "WITH optimizer AS (SELECT a.cpu_op_id, name, a.thread_id, a.start_ns, a.start_ns + a.dur_ns AS end_ns FROM named_cpu_ops a "
        "WHERE a.kind = 'annotation' AND a.name_id IN (SELECT unnest($2::INTEGER[]))), "
        "nodes AS (SELECT o.start_ns, o.start_ns + o.dur_ns AS end_ns FROM named_cpu_ops o WHERE starts_with(name, $3)), "
        "timed AS (SELECT o.*, max(n.end_ns) AS passed_ns FROM optimizer o LEFT JOIN nodes n ON n.start_ns >= o.start_ns AND n.start_ns < o.end_ns GROUP BY ALL), "
        "own AS (SELECT thread_id, greatest(start_ns, coalesce(passed_ns, start_ns)) AS start_ns, end_ns FROM timed "
        "QUALIFY passed_ns IS NOT NULL OR count(passed_ns) OVER (PARTITION BY name) = 0) "
        f"SELECT gpu_op_id FROM gpu_ops JOIN ({launches_within('own')}) USING (call_id) WHERE device = $1",
        [device, names, AUTOGRAD_NODE],
    )
    return columns["gpu_op_id"].to_numpy(np.int64)


def select_rows(rows: pd.DataFrame, is_selected: Callable[[Any], bool]) -> pd.DataFrame:
    """Return the rows of ``step_work`` for which ``is_selected`` (of a named tuple) is true.

    ``is_selected`` runs once for all rows with the same kernel, operators and inputs, so it must only use these.
    """
    if rows.empty:
        return rows
    _, first, inverse = np.unique(rows["launch_kind"].to_numpy(), return_index=True, return_inverse=True)
    return rows[np.array([bool(is_selected(row)) for row in rows["example"].to_numpy()[first]], bool)[inverse]]


def has_complex_numbers(rows: pd.DataFrame) -> NDArray[np.bool_]:
    """Return for each row of ``step_work`` whether its kernel or an input has a complex type."""
    kinds = rows.drop_duplicates("signature_id")
    signatures = kinds.loc[[any("complex" in str(name) for name in types or ()) for types in kinds["types"]], "signature_id"]
    in_kernel = rows["kernel"].str.contains(COMPLEX_KERNEL, regex=False, na=False)
    return (in_kernel | rows["signature_id"].isin(signatures.dropna())).to_numpy(bool)


def ms_per_step(rows: pd.DataFrame, steps: int) -> float:
    """Return the kernel time of ``rows`` in ms per step. Time in which several rows run counts once."""
    return union(rows["start_ns"], rows["end_ns"]).total / 1e6 / max(steps, 1)


def count_in_words(rows: pd.DataFrame, steps: int) -> str:
    """Return the number of ``rows`` per step in words, such as "69 kernels".

    The text says "GPU operations" if copies or fills are among them.
    """
    count = len(rows) / max(steps, 1)
    noun = "kernel" if (rows["kind"] == "kernel").all() else "GPU operation"
    return f"{count:,.0f} {noun}{'' if round(count) == 1 else 's'}"


def numel(shape: Any) -> int:
    """Return the element count of a recorded shape, 0 if ``shape`` is not a shape."""
    if not isinstance(shape, list) or not all(isinstance(n, int) for n in shape):
        return 0
    return min(math.prod(shape), 2**62)  # A nonsense value of a damaged file must still fit a column.


def evidence_of(rows: pd.DataFrame, steps: int, by: Iterable[str] = ("operator", "kernel")) -> list[Row]:
    """Return the MAX_EVIDENCE longest groups of ``rows`` by the columns ``by``, longest first.

    Each group has the time per step, the count per step, and the start and end of the longest kernel.
    """
    keys = list(by)
    dur_ns = rows["dur_ns"].to_numpy(np.int64)
    group = rows.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    total_ns = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.add.at(total_ns, group, dur_ns)
    evidence: list[Row] = []
    for longest_group in np.argsort(-total_ns, kind="stable")[:MAX_EVIDENCE].tolist():
        part = np.flatnonzero(group == longest_group)
        longest = rows.iloc[part[np.argmax(dur_ns[part])]]
        dims = longest["flop_dims"] if longest["flop_dims"] is not None else longest["dims"]
        row: Row = {k: None if pd.isna(longest[k]) else str(longest[k])[:200] for k in keys}
        row |= {
            "shapes": json.dumps(dims) if dims is not None else None,
            "ms_per_step": float(total_ns[longest_group]) / 1e6 / max(steps, 1),
        }
        row |= {
            "kernels_per_step": len(part) / max(steps, 1),
            "start_ns": int(longest["start_ns"]),
            "end_ns": int(longest["end_ns"]),
        }
        evidence.append(row)
    return evidence
