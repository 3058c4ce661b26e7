"""Chains of kernels that only move the same data, and that a compiler could run as one kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.distinct_rows import positions_by
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.intervals import where_true
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps

FUSABLE = ("elementwise", "norm", "softmax", "reduction", "copy")
GRAPH_LAUNCH = r"GraphLaunch"
PRODUCTS = ("gemm", "conv", "attention")
LOSS = ("aten::_log_softmax", "aten::_log_softmax_backward_data")
SHORTEST_CHAIN = 2  # Two kernels over the same data read and write it twice; one fused kernel reads and writes it once.
EXPONENTIAL = frozenset(("aten::exp",))
# With an exponential, these reductions are a softmax in separate operators, not an activation.
OVER_ROWS = frozenset(("aten::sum", "aten::amax", "aten::max", "aten::logsumexp"))
SUBTRACTS = ("aten::sub", "aten::sub_")
# Time of a fused kernel ÷ time of the slowest kernel of its chain. It is little more, because the fused kernel reads each input
# and writes the result only once.
FUSED_COST = 1.1
MAX_FUSED = 64  # Inductor fuses at most this many operations (max_fusion_size).
# Inductor makes about three kernels of the kernels between two products: 138 kernels for 52 such groups on the mixer of
# tests/recordings_after, 97 for 36 on gpt_compiled. Together these took 1.19 and 0.88 times the longest kernel that they
# replace.
COMPILED_KERNELS = 3
MIN_FUSED = 0.8  # Lower bound as a share of FUSED_COST, the same for every predicted kernel time.
# A kernel with at least this share of the time of its chain's longest kernel moves the same number of elements, perhaps in fewer
# bits. The fused kernel may also need only these fewer bits.
NARROW = 0.4


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
    moves = (work["category"].isin(FUSABLE).to_numpy() & (work["kind"] == "kernel").to_numpy() & (np.array(size) > 1)).tolist()
    fusable: list[KernelChain] = []
    for places in _rows_by_stream(work):
        run: list[int] = []
        reduced = False
        for index in [*places.tolist(), -1]:
            of_rows = with_statistics and reduced and category[index] != "copy" and size[run[0]] % max(size[index], 1) == 0
            if index >= 0 and moves[index] and (not run or size[index] == size[run[0]] or of_rows):
                run.append(index)
                reduced |= category[index] == "reduction"
                continue
            if len(run) >= SHORTEST_CHAIN:
                fusable.append(
                    KernelChain(np.array(run), frozenset(o for o in (operators[i] for i in run) if isinstance(o, str)))
                )
            run = [index] if index >= 0 and moves[index] else []
            reduced = bool(run) and category[index] == "reduction"
    return fusable


def _rows_by_stream(work: pd.DataFrame) -> list[NDArray[np.int64]]:
    """Return the row positions of each stream in each step.

    Iterating over pandas groups would take 2 ms per group, and there may be thousands of groups.
    """
    numbers = work.groupby(["step", "stream"], sort=False).ngroup().fillna(-1).to_numpy(np.int64)
    return [places for number, places in positions_by(numbers).items() if number >= 0]


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


def after_updates(work: pd.DataFrame, captured: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the positions of captured elementwise kernels that follow an optimizer's kernel.

    Only kernels after the last product of their step and stream count.
    """
    category = work["category"].to_numpy()
    updated: list[NDArray[np.int64]] = []
    for places in _rows_by_stream(work):
        last = np.flatnonzero(np.isin(category[places], PRODUCTS)).max(initial=-1)
        tail = places[last + 1 :]
        updates = np.cumsum(category[tail] == "optimizer") > 0
        updated.append(tail[updates & (category[tail] == "elementwise") & captured[tail]])
    return np.concatenate(updated) if updated else np.empty(0, np.int64)


def between_products(
    work: pd.DataFrame, left_out: NDArray[np.int64], captured: NDArray[np.bool_] | None = None
) -> list[np.ndarray]:
    """Return the groups of rows (positions, at least two each) that a compiler would fuse.

    A group has kernels that only move data and follow one another on a stream. No product, attention or copy to or from the
    host lies between them. The compiler does not see the gpu_op_ids in ``left_out``, nor kernels without an operator. The rows
    ``captured`` belong to CUDA graphs, which have no operators. Their groups count only between two products of a step, because
    an optimizer in the graph may follow the last product. A captured group of more than MAX_FUSED rows may be a loop over time,
    where each operation needs the one before, so it does not count either.
    """
    captured = np.zeros(len(work), bool) if captured is None else captured
    movers = work["category"].isin(FUSABLE) & (work["kind"] == "kernel") & (work["operator"].notna() | captured)
    moves = (movers & ~work["gpu_op_id"].isin(left_out)).to_numpy()
    not_memset = np.flatnonzero((work["kind"] != "memset").to_numpy())
    joined: list[np.ndarray] = []
    for of_stream in _rows_by_stream(work.iloc[not_memset]):
        places = not_memset[of_stream]
        products = np.flatnonzero(work["category"].isin(PRODUCTS).to_numpy()[places])
        inside = (products.min(initial=len(places)), products.max(initial=-1))
        for first, last in zip(*where_true(moves[places]), strict=True):
            has_known_ends = not captured[places[first]] or (last - first <= MAX_FUSED and inside[0] < first < inside[1])
            if last - first >= SHORTEST_CHAIN and has_known_ends:
                joined.append(places[first:last])
    return joined


def fused_ns(durations: NDArray[np.int64], shortest_ns: int = 0) -> int:
    """Return the time of the few kernels that replace the kernels with these ``durations``.

    Together the new kernels take as long as the longest old kernel. Each takes at least ``shortest_ns``, or its own time if
    that is less.
    """
    longest = np.sort(durations)[::-1][:COMPILED_KERNELS]
    return max(int(durations.max()), int(np.minimum(longest, shortest_ns).sum()))


def compiling_edits(work: pd.DataFrame, joined: list[np.ndarray], shortest_ns: int = 0) -> list[Edit]:
    """Return the edits that run each group of ``joined`` as a compiler would.

    The loss may take as long as before, because many loops compute it outside of the model. So may the host: compiled code checks
    its guards and launches from Python, and none of three host-limited loops became faster (docs/evidence/advice.md).
    """
    ids, durations = work["gpu_op_id"].to_numpy(np.int64), work["dur_ns"].to_numpy(np.int64)
    of_loss = work["operator"].isin(LOSS).to_numpy()
    edits, removed = list[Edit](), list[int]()
    for may_stay in (False, True):
        kept_ids, timed, longest_ns = [], [], []
        for rows in (rows for rows in joined if of_loss[rows].any() == may_stay):
            longest = np.argsort(-durations[rows], kind="stable")
            remaining = np.sort(rows[longest[:COMPILED_KERNELS]])
            share = durations[remaining] / max(durations[remaining].sum(), 1)
            kept_ids += ids[remaining].tolist()
            timed += (share * fused_ns(durations[rows], shortest_ns)).astype(np.int64).tolist()
            longest_ns += (share * durations[rows].sum()).astype(np.int64).tolist()
            removed += ids[rows[longest[COMPILED_KERNELS:]]].tolist()
        edits += [TimedOps(tuple(kept_ids), tuple(timed), high_ns=tuple(longest_ns) if may_stay else ())] if kept_ids else []
    return edits + ([WithoutOps(tuple(removed), host_may_stay=True)] if removed else [])


def marked(
    context: RuleContext,
    marks: frozenset[str],
    *,
    shortest: int = SHORTEST_CHAIN,
    begins: bool = False,
    only: Callable[[pd.DataFrame, KernelChain], bool] = lambda work, chain: True,
) -> tuple[pd.DataFrame, list[Edit]]:
    """Return the kernels of the chains with an operator of ``marks``, and the edits that fuse each chain.

    The kernels of the chains' backward passes are included. With ``begins``, a fused part starts at the first reduction or
    mark of its chain, as a norm does; earlier kernels stay. ``only`` selects among the chains with a mark.
    """
    work = context.work
    if not work["operator"].isin(marks).any():
        return work.iloc[:0], []
    whole = [
        c
        for c in chains(context, with_statistics=begins)
        if c.operators & marks
        and len(c.rows) >= shortest
        and only(work, c)
        and not (c.operators & marks == EXPONENTIAL and (c.operators & OVER_ROWS or _is_softmax(work, c)))
    ]
    marked_chains = [_trimmed_start(work, chain, marks) for chain in whole] if begins else whole
    if not marked_chains:
        return work.iloc[:0], []
    backward = _backward_rows(context, work, marked_chains)
    # The gradients of a norm's weights need a second kernel: they sum over rows, while the norm sums within rows.
    parts = [(chain.rows, 1) for chain in marked_chains] + [(rows, 2 if begins else 1) for rows in backward]
    return work.iloc[np.concatenate([rows for rows, _ in parts])], _as_kernels(work, parts)


def _is_softmax(work: pd.DataFrame, chain: KernelChain) -> bool:
    """Return whether each exponential belongs to a softmax or to its backward pass.

    In a softmax, the operator before the exponential subtracts one number per row. No activation does this.
    """
    operators, dims = (work[column].iloc[chain.rows].tolist() for column in ("operator", "dims"))
    return all(
        place and operators[place - 1] in SUBTRACTS and _per_row(dims[place - 1])
        for place, operator in enumerate(operators)
        if operator in EXPONENTIAL
    )


def _per_row(dims: list[Any] | None) -> bool:
    """Return whether the second input has one column and the first has more."""
    first, second = (dims or [])[:2] if len(dims or []) > 1 else ([], [])
    return numel(first) > numel(second) > 1 and second[-1] == 1 < first[-1]


def _trimmed_start(work: pd.DataFrame, chain: KernelChain, marks: frozenset[str]) -> KernelChain:
    operators, category = work["operator"].to_numpy(), work["category"].to_numpy()
    first = next(
        i for i, row in enumerate(chain.rows) if category[row] == "reduction" or operators[row] in marks | {"aten::pow"}
    )
    return KernelChain(chain.rows[first:], chain.operators)


def _backward_rows(context: RuleContext, work: pd.DataFrame, forward_chains: list[KernelChain]) -> list[np.ndarray]:
    """Return the rows that each chain's backward pass launched.

    Autograd's nodes have the sequence number of their forward operator.
    """
    rows = context.recording.rows(_SEQUENCE, [sorted({int(i) for i in work["cpu_op_id"].dropna()})])
    backward_of = {leaf: (number, bool(backward)) for leaf, number, backward in rows}
    steps = work["step"].tolist()
    forward: dict[tuple[int, int], int] = {}
    later: dict[tuple[int, int], list[int]] = {}
    chain_of = {int(row): place for place, chain in enumerate(forward_chains) for row in chain.rows}
    for row, op in enumerate(work["cpu_op_id"].tolist()):
        number, is_backward = backward_of.get(int(op), (None, False)) if pd.notna(op) else (None, False)
        if number is None:
            continue
        if is_backward:
            later.setdefault((steps[row], number), []).append(row)
        elif row in chain_of:
            forward[steps[row], number] = chain_of[row]
    parts: dict[int, list[int]] = {}
    for key, place in forward.items():
        parts.setdefault(place, []).extend(later.get(key, []))
    return [np.array(sorted(part)) for part in parts.values() if len(part) >= SHORTEST_CHAIN]


def _as_kernels(work: pd.DataFrame, parts: list[tuple[np.ndarray, int]]) -> list[Edit]:
    """Return the edits that run each part as the given number of kernels.

    Each kernel takes the time of the part's longest kernel times FUSED_COST. The lower bound is the time of the part's
    narrowest kernel.
    """
    ids, durations = work["gpu_op_id"].to_numpy(np.int64), work["dur_ns"].to_numpy(np.int64)
    kept_ids, timed, least_ns, removed = [], [], [], []
    for rows, kernels in parts:
        kept_ids += ids[rows[:kernels]].tolist()
        part = durations[rows]
        kernel_ns = min(int(part.max() * FUSED_COST), int(part.sum()) // kernels)
        narrow = int(part[part >= NARROW * part.max()].min())
        timed += [kernel_ns] * len(rows[:kernels])
        least_ns += [min(int(MIN_FUSED * kernel_ns), int(FUSED_COST * narrow))] * len(rows[:kernels])
        removed += ids[rows[kernels:]].tolist()
    return [TimedOps(tuple(kept_ids), tuple(timed), tuple(least_ns)), WithoutOps(tuple(removed))] if kept_ids else []


# The sequence number of the operator that launched a kernel, or of the nearest enclosing operator with such a number.
_SEQUENCE = """
    WITH RECURSIVE up AS (
        SELECT cpu_op_id AS leaf, parent_id, sequence_number, name_id FROM cpu_ops WHERE cpu_op_id IN (SELECT unnest(?::BIGINT[]))
        UNION ALL
        SELECT up.leaf, o.parent_id, o.sequence_number, o.name_id FROM up JOIN cpu_ops o ON o.cpu_op_id = up.parent_id WHERE up.sequence_number IS NULL)
    SELECT leaf, sequence_number, regexp_matches(name, '^autograd::|Backward[0-9]*$') FROM up JOIN names USING (name_id) WHERE sequence_number IS NOT NULL"""
