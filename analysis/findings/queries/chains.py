"""Chains of kernels over the same data that a compiler could run as one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.distinct_rows import positions_by
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.recorded.counted_operations import has_complex_numbers, numel
from sawtooth.analysis.intervals import where_true
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

FUSABLE = ("elementwise", "norm", "softmax", "reduction", "copy")
GRAPH_LAUNCH = r"GraphLaunch"
PRODUCTS = ("gemm", "conv", "attention")
LOSS = ("aten::_log_softmax", "aten::_log_softmax_backward_data")
MIN_CHAIN = 2  # Kernels. A single kernel has nothing to fuse with.
EXPONENTIAL = frozenset(("aten::exp",))
ROW_REDUCTIONS = frozenset(("aten::sum", "aten::amax", "aten::max", "aten::logsumexp"))
SUBTRACTIONS = ("aten::sub", "aten::sub_")
FUSED_FACTOR = 1.1  # Time of a fused kernel ÷ time of the longest kernel of the chain.
MAX_FUSED = 64  # Inductor fuses at most this many operations (max_fusion_size).
# Inductor makes about three kernels of the kernels between two products: 138 kernels for 52 such groups on the mixer of
# tests/recordings_after, 97 for 36 on gpt_compiled. The new kernels of a group took 1.19 and 0.88 times as long as its longest kernel.
COMPILED_KERNELS = 3
MIN_FUSED_SHARE = 0.8  # Lower bound ÷ likely time of a fused kernel.
# Share of the time of a chain's longest kernel. A kernel with at least this share moves as many elements, perhaps with fewer bits
# each. The fused kernel may need only these fewer bits.
NARROW_SHARE = 0.4


@dataclass(frozen=True)
class KernelChain:
    """Rows of a ``step_work`` frame that follow one another on one stream, with equal element counts."""

    rows: np.ndarray
    operators: frozenset[str]


def elements(work: pd.DataFrame) -> np.ndarray:
    """Return the element count of the largest input of each row's operator, 0 without recorded shapes."""
    inputs = work.drop_duplicates("signature_id")
    largest_sizes = {
        key: max((numel(shape) for shape in dims or []), default=0)
        for key, dims in zip(inputs["signature_id"], inputs["dims"], strict=True)
    }
    return work["signature_id"].map(largest_sizes).fillna(0).to_numpy(np.int64)


@once
def chains(context: RuleContext, *, with_statistics: bool = False) -> list[KernelChain]:
    """Return the maximal fusable chains of ``RuleContext.work``, in order.

    With ``with_statistics``, a chain also includes the kernels over the result of its own reduction, such as a mean or a
    variance per row.
    """
    work = context.work
    size = elements(work).tolist()
    category, operators = work["category"].tolist(), work["operator"].tolist()
    fusable = work["category"].isin(FUSABLE).to_numpy() & (work["kind"] == "kernel").to_numpy() & (np.array(size) > 1)
    all_chains: list[KernelChain] = []

    def close(chain: list[int]) -> None:
        if len(chain) >= MIN_CHAIN:
            names = frozenset(operators[row] for row in chain if isinstance(operators[row], str))
            all_chains.append(KernelChain(np.array(chain), names))

    for stream_rows in _rows_by_stream(work):
        chain: list[int] = []
        has_reduction = False
        for row in stream_rows.tolist():
            if not fusable[row]:
                close(chain)
                chain, has_reduction = [], False
                continue
            if chain and size[row] != size[chain[0]]:
                over_statistics = has_reduction and category[row] != "copy" and size[chain[0]] % max(size[row], 1) == 0
                if not (with_statistics and over_statistics):
                    close(chain)
                    chain, has_reduction = [], False
            chain.append(row)
            has_reduction |= category[row] == "reduction"
        close(chain)
    return all_chains


def _rows_by_stream(work: pd.DataFrame) -> list[NDArray[np.int64]]:
    """Return the row positions of each stream in each step.

    Iterating over pandas groups would take 2 ms per group, and there may be thousands of groups.
    """
    numbers = work.groupby(["step", "stream"], sort=False).ngroup().fillna(-1).to_numpy(np.int64)
    return [rows for number, rows in positions_by(numbers).items() if number >= 0]


def graph_kernels(context: RuleContext) -> NDArray[np.int64]:
    """Return the gpu_op_ids of the kernels in CUDA graphs, which show no operators."""
    if not context.rank.facts.graph_kernels_in_counted_steps:
        return np.empty(0, np.int64)
    recording, device = context.recording, context.rank.device
    rows = recording.rows(
        "SELECT gpu_op_id FROM gpu_ops LEFT JOIN runtime_calls c USING (call_id) "
        "WHERE device = ? AND (graph_id >= 0 OR c.name_id IN (SELECT unnest(?::INTEGER[])))",
        [device, recording.named(GRAPH_LAUNCH)],
    )
    return np.array([op for (op,) in rows], np.int64)


def captured_after_updates(work: pd.DataFrame, captured: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the rows of captured elementwise kernels after an optimizer and a step's last product."""
    category = work["category"].to_numpy()
    kernels: list[NDArray[np.int64]] = []
    for rows in _rows_by_stream(work):
        last_product = np.flatnonzero(np.isin(category[rows], PRODUCTS)).max(initial=-1)
        tail = rows[last_product + 1 :]
        after_optimizer = np.cumsum(category[tail] == "optimizer") > 0
        kernels.append(tail[after_optimizer & (category[tail] == "elementwise") & captured[tail]])
    return np.concatenate(kernels) if kernels else np.empty(0, np.int64)


def fusable_groups(
    work: pd.DataFrame, left_out: NDArray[np.int64], captured: NDArray[np.bool_] | None = None
) -> list[np.ndarray]:
    """Return the groups of rows (positions, at least two each) that a compiler would fuse.

    The kernels of a group only move data and follow one another on a stream. No product, attention or copy to or from the host
    lies between them, nor a kernel of complex numbers, for which Inductor generates no code. The compiler does not see the gpu_op_ids in ``left_out``, nor kernels without an operator. The rows
    ``captured`` belong to CUDA graphs, which have no operators. A captured group counts only between two products of a step,
    because an optimizer in the graph may follow the last product. A captured group counts only with at most MAX_FUSED rows,
    because a longer one may be a loop over time, where each operation needs the one before.
    """
    captured = np.zeros(len(work), bool) if captured is None else captured
    can_fuse = work["category"].isin(FUSABLE) & (work["kind"] == "kernel") & (work["operator"].notna() | captured)
    fusable = (can_fuse & ~work["gpu_op_id"].isin(left_out)).to_numpy() & ~has_complex_numbers(work)
    is_product = work["category"].isin(PRODUCTS).to_numpy()
    not_memset = np.flatnonzero((work["kind"] != "memset").to_numpy())
    groups: list[np.ndarray] = []
    for rows in (not_memset[stream_rows] for stream_rows in _rows_by_stream(work.iloc[not_memset])):
        products = np.flatnonzero(is_product[rows])
        first_product, last_product = products.min(initial=len(rows)), products.max(initial=-1)
        for start, end in zip(*where_true(fusable[rows]), strict=True):
            is_between = end - start <= MAX_FUSED and first_product < start < last_product
            if end - start >= MIN_CHAIN and (is_between or not captured[rows[start]]):
                groups.append(rows[start:end])
    return groups


def fused_ns(durations: NDArray[np.int64], shortest_ns: int = 0) -> int:
    """Return the total time of the few kernels that replace the kernels with these ``durations``.

    The total is the time of the longest old kernel, but at least ``shortest_ns`` for each new kernel. An old kernel that
    takes less than ``shortest_ns`` keeps its time.
    """
    longest = np.sort(durations)[::-1][:COMPILED_KERNELS]
    return max(int(durations.max()), int(np.minimum(longest, shortest_ns).sum()))


def compiling_edits(work: pd.DataFrame, groups: list[np.ndarray], shortest_ns: int = 0) -> list[Edit]:
    """Return the edits that run each of the ``groups`` of rows as a compiler would.

    The loss may take as long as before, because many loops compute the loss outside of the model. The host may also take as long
    as before, because compiled code checks its guards and launches from Python. None of three host-limited loops became faster
    (docs/evidence/advice.md).
    """
    ids, durations = work["gpu_op_id"].to_numpy(np.int64), work["dur_ns"].to_numpy(np.int64)
    is_loss = work["operator"].isin(LOSS).to_numpy()
    edits, removed = list[Edit](), list[int]()
    for may_stay in (False, True):
        fused_ids, fused_times, unfused_times = [], [], []
        for rows in (rows for rows in groups if is_loss[rows].any() == may_stay):
            longest = np.argsort(-durations[rows], kind="stable")
            fused_rows = np.sort(rows[longest[:COMPILED_KERNELS]])
            share = durations[fused_rows] / max(durations[fused_rows].sum(), 1)
            fused_ids += ids[fused_rows].tolist()
            fused_times += (share * fused_ns(durations[rows], shortest_ns)).astype(np.int64).tolist()
            unfused_times += (share * durations[rows].sum()).astype(np.int64).tolist()
            removed += ids[rows[longest[COMPILED_KERNELS:]]].tolist()
        if fused_ids:
            edits.append(TimedOps(tuple(fused_ids), tuple(fused_times), high_ns=tuple(unfused_times) if may_stay else ()))
    return edits + ([WithoutOps(tuple(removed), host_may_stay=True)] if removed else [])


def fused_chains_with(
    context: RuleContext,
    marks: frozenset[str],
    *,
    shortest: int = MIN_CHAIN,
    begins: bool = False,
    only: Callable[[pd.DataFrame, KernelChain], bool] = lambda work, chain: True,
) -> tuple[pd.DataFrame, list[Edit]]:
    """Return the kernels of the chains with an operator of ``marks``, and the edits that fuse each chain.

    The kernels include those of the chains' backward passes. With ``begins``, a fused kernel starts at the first reduction or
    mark of the chain, as a norm does, and earlier kernels stay. ``only`` selects among the chains with a mark.
    """
    work = context.work
    if not work["operator"].isin(marks).any():
        return work.iloc[:0], []
    marked_chains = [
        chain
        for chain in chains(context, with_statistics=begins)
        if chain.operators & marks
        and len(chain.rows) >= shortest
        and only(work, chain)
        and not (chain.operators & marks == EXPONENTIAL and _has_softmax(work, chain))
    ]
    if begins:
        marked_chains = [_from_first_mark(work, chain, marks) for chain in marked_chains]
    if not marked_chains:
        return work.iloc[:0], []
    backward = _backward_rows(context, work, marked_chains)
    # The gradients of a norm's weights need a second kernel, because they sum over rows, while the norm sums within rows.
    parts = [(chain.rows, 1) for chain in marked_chains] + [(rows, 2 if begins else 1) for rows in backward]
    return work.iloc[np.concatenate([rows for rows, _ in parts])], _as_kernels(work, parts)


def _has_softmax(work: pd.DataFrame, chain: KernelChain) -> bool:
    """Return whether a chain with exponentials is a softmax or its backward pass.

    A softmax reduces rows, or subtracts one number per row before each exponential. No activation does this.
    """
    if chain.operators & ROW_REDUCTIONS:
        return True
    operators, dims = (work[column].iloc[chain.rows].tolist() for column in ("operator", "dims"))
    return all(
        index and operators[index - 1] in SUBTRACTIONS and _has_number_per_row(dims[index - 1])
        for index, operator in enumerate(operators)
        if operator in EXPONENTIAL
    )


def _has_number_per_row(dims: list[Any] | None) -> bool:
    """Return whether the second input has one column and the first has more."""
    first, second = (dims or [])[:2] if len(dims or []) > 1 else ([], [])
    return numel(first) > numel(second) > 1 and second[-1] == 1 < first[-1]


def _from_first_mark(work: pd.DataFrame, chain: KernelChain, marks: frozenset[str]) -> KernelChain:
    rows = work.iloc[chain.rows]
    begins = (rows["category"] == "reduction") | rows["operator"].isin(marks | {"aten::pow"})
    return KernelChain(chain.rows[int(begins.to_numpy().argmax()) :], chain.operators)


def _backward_rows(context: RuleContext, work: pd.DataFrame, forward_chains: list[KernelChain]) -> list[np.ndarray]:
    """Return the rows that each chain's backward pass launched.

    Autograd's nodes have the sequence number of their forward operator.
    """
    rows = context.recording.rows(_SEQUENCE, [sorted({int(i) for i in work["cpu_op_id"].dropna()})])
    sequence_numbers = {op: (number, bool(is_backward)) for op, number, is_backward in rows}
    steps = work["step"].tolist()
    chain_of_row = {int(row): index for index, chain in enumerate(forward_chains) for row in chain.rows}
    chain_of_key: dict[tuple[int, int], int] = {}  # The key is a step and a sequence number.
    backward_rows: dict[tuple[int, int], list[int]] = {}
    for row, op in enumerate(work["cpu_op_id"].tolist()):
        number, is_backward = sequence_numbers.get(int(op), (None, False)) if pd.notna(op) else (None, False)
        if number is None:
            continue
        if is_backward:
            backward_rows.setdefault((steps[row], number), []).append(row)
        elif row in chain_of_row:
            chain_of_key[steps[row], number] = chain_of_row[row]
    rows_of_chain: dict[int, list[int]] = {}
    for key, chain_index in chain_of_key.items():
        rows_of_chain.setdefault(chain_index, []).extend(backward_rows.get(key, []))
    return [np.array(sorted(rows)) for rows in rows_of_chain.values() if len(rows) >= MIN_CHAIN]


def _as_kernels(work: pd.DataFrame, parts: list[tuple[np.ndarray, int]]) -> list[Edit]:
    """Return the edits that run each part (rows, number of new kernels) as this number of kernels.

    Each new kernel takes FUSED_FACTOR times as long as the longest old kernel. The lower bound is FUSED_FACTOR times the time of
    the old kernel with the fewest bits.
    """
    ids, durations = work["gpu_op_id"].to_numpy(np.int64), work["dur_ns"].to_numpy(np.int64)
    kept_ids, kernel_times, low_times, removed = [], [], [], []
    for rows, count in parts:
        kept_ids += ids[rows[:count]].tolist()
        old = durations[rows]
        kernel_ns = min(int(old.max() * FUSED_FACTOR), int(old.sum()) // count)
        narrow_ns = int(old[old >= NARROW_SHARE * old.max()].min())
        kernel_times += [kernel_ns] * len(rows[:count])
        low_times += [min(int(MIN_FUSED_SHARE * kernel_ns), int(FUSED_FACTOR * narrow_ns))] * len(rows[:count])
        removed += ids[rows[count:]].tolist()
    return [TimedOps(tuple(kept_ids), tuple(kernel_times), tuple(low_times)), WithoutOps(tuple(removed))] if kept_ids else []


# The sequence number of the operator that launched a kernel, or of the nearest enclosing operator with such a number.
_SEQUENCE = """
    WITH RECURSIVE up AS (
        SELECT cpu_op_id AS leaf, parent_id, sequence_number, name_id FROM cpu_ops WHERE cpu_op_id IN (SELECT unnest(?::BIGINT[]))
        UNION ALL
        SELECT up.leaf, o.parent_id, o.sequence_number, o.name_id FROM up JOIN cpu_ops o ON o.cpu_op_id = up.parent_id WHERE up.sequence_number IS NULL)
    SELECT leaf, sequence_number, regexp_matches(name, '^autograd::|Backward[0-9]*$') FROM up JOIN names USING (name_id) WHERE sequence_number IS NOT NULL"""
