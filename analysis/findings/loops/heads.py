"""Attention that a loop computes one head after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import Passes, backward_op_ids, passes
from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.knowledge.kernel_work import product_work

MIN_HEADS = 3  # Two equal attentions can be the two directions between two sequences.
MAX_OWN_PRODUCTS = 3  # Products between two heads compute the next head's queries, keys and values.
MAX_VALUE_PRODUCTS = 1  # Products between a softmax and the product with the values: the projection of a head's values.
SOFTMAX = ("aten::_softmax", "aten::_safe_softmax")
SLICES = r"^aten::(slice|select|narrow)$"
JOINS = ("aten::cat", "aten::_cat", "aten::stack")

Kind = Literal["product", "softmax", "fused", "communication", "join"]


@dataclass(frozen=True)
class HeadLoop:
    """The heads of one attention that run one after the other, and their rows of ``RuleContext.work``."""

    heads: int
    work: Passes


class AttentionEvent(NamedTuple):
    """An operator of a forward pass that shows the structure of an attention.

    ``key`` is equal for calls of one operator with equal shapes. ``inputs`` are the element counts of the inputs, or of the tensors
    that an operator joins or copies. ``output`` is the element count of the result.
    """

    kind: Kind
    key: tuple[object, ...]
    op: int
    inputs: tuple[int, ...] = ()
    output: int = 0


class Attention(NamedTuple):
    """An attention in a sequence of events.

    ``first`` and ``last`` are the positions of the attention's first and last event. ``key`` is equal for attentions of equal shapes.
    ``output`` is the element count of the result.
    """

    first: int
    last: int
    key: tuple[object, ...]
    output: int


@once
def head_loops(context: RuleContext) -> list[HeadLoop]:
    """Return the attentions of the counted steps whose heads run one after the other.

    Heads are at least MIN_HEADS attentions of equal shapes that follow one another. Only the products of a head's queries, keys and
    values may lie between them. One operator joins the results, or copies write each result into one tensor. Layers of a model also
    follow one another, but nothing joins their results.
    """
    work = context.work
    is_attention = work["operator"].isin(SOFTMAX) | (work["category"] == "attention")
    if int(is_attention.sum()) < MIN_HEADS * context.work_steps:
        return []
    forward = work[~work["gpu_op_id"].isin(backward_op_ids(context))].sort_values("start_ns", kind="stable")
    loops = []
    for _, rows in forward.groupby("step"):
        for heads, loop_operators in _loops(list(_events(rows))):
            begun = context.launches.operators_begun_between(np.array(loop_operators, np.int64)).tolist()
            loops.append(HeadLoop(heads, passes(context, [*_slices_before(context, begun, heads), *begun])))
    return loops


def _slices_before(context: RuleContext, loop_operators: Sequence[int], heads: int) -> list[int]:
    """Return the slices of the first head, which come before the ``loop_operators``.

    Every head has an equal number of slices, so the slices missing among ``loop_operators`` come directly before.
    """
    slices = operators(context, SLICES).frame
    loop_slices = slices[slices["id"].isin(loop_operators)]
    if loop_slices.empty:
        return []
    missing = -len(loop_slices) % heads
    before = slices[(slices["id"] < min(loop_operators)) & (slices["thread_id"] == loop_slices["thread_id"].iloc[0])]
    return [int(op) for op in before["id"].tail(missing)] if missing else []


def _events(rows: pd.DataFrame) -> Iterator[AttentionEvent]:
    """Yield the events of one step's forward pass. An operator with several kernels is one event."""
    event_of_kind: dict[int, AttentionEvent | None] = {}
    previous_op = -1
    for kind, row, launching_op, flop_op in zip(
        *(rows[name].tolist() for name in ("launch_kind", "example", "cpu_op_id", "flop_op_id")), strict=True
    ):
        if kind not in event_of_kind:
            event_of_kind[kind] = _event(row)
        event = event_of_kind[kind]
        if event is None:
            continue
        op = flop_op if event.kind in ("product", "fused") else launching_op
        op = int(op) if pd.notna(op) else -1
        if op != previous_op or op < 0:
            previous_op = op
            yield event._replace(op=op)


def _event(row: Any) -> AttentionEvent | None:
    """Return the event of a row of ``RuleContext.work`` with -1 as operator, None for other work."""
    dims = row.dims or []
    if row.category == "communication":
        return AttentionEvent("communication", (), -1)
    if row.operator in SOFTMAX and dims:
        return AttentionEvent("softmax", (row.signature_id,), -1, (), numel(dims[0]))
    if row.operator in JOINS and dims and isinstance(dims[0], list):
        return AttentionEvent("join", (), -1, tuple(numel(shape) for shape in dims[0]))
    if row.operator == "aten::copy_" and dims:
        return AttentionEvent("join", (), -1, (numel(dims[0]),))
    key = (row.flop_operator, row.flop_signature_id)
    if row.category == "attention" and row.flop_dims:
        return AttentionEvent("fused", key, -1, (), numel(row.flop_dims[0]))
    work = product_work(row.flop_operator, row.flop_dims, row.flop_strides, "bf16") if row.category == "gemm" else None
    if work is None:
        return None
    product = work.products[0]
    batch, m, n, k = (int(size) for size in (product.batch, product.m, product.n, product.k))
    return AttentionEvent("product", key, -1, (batch * m * k, batch * k * n), batch * m * n)


def _loops(events: Sequence[AttentionEvent]) -> Iterator[tuple[int, list[int]]]:
    """Yield the number of heads of each loop in a step, and the ids of the loop's operators."""
    positions = [position for position, event in enumerate(events) if event.kind != "join"]
    computing = [events[position] for position in positions]
    attentions = list(_attentions(computing))
    own_products = [
        _products_between(computing, attention, next_attention) for attention, next_attention in pairwise(attentions)
    ]
    start = 0
    while start < len(attentions):
        end = start + 1
        while end < len(attentions) and _continues_loop(attentions, own_products, start, end):
            end += 1
        if end - start < MIN_HEADS:
            start = max(end - 1, start + 1)
            continue
        products, heads = own_products[start] or (), attentions[start:end]
        first, last = heads[0].first - len(products), heads[-1].last
        first_products = tuple(event.key for event in computing[max(first, 0) : heads[0].first])
        next_position = positions[last + 1] if last + 1 < len(positions) else len(events)
        head_ends = [positions[head.last] for head in heads]
        if first_products == products and _are_joined(
            events, head_ends, next_position, heads[0].output, may_be_copied=not products
        ):
            yield len(heads), [event.op for event in computing[first : last + 1] if event.op >= 0]
        start = end


def _continues_loop(
    attentions: Sequence[Attention], own_products: Sequence[tuple[tuple[object, ...], ...] | None], start: int, index: int
) -> bool:
    products = own_products[start]
    return products is not None and own_products[index - 1] == products and attentions[index].key == attentions[start].key


def _attentions(events: Sequence[AttentionEvent]) -> Iterator[Attention]:
    """Yield the attentions among the events.

    An attention is a fused kernel, or a softmax between two products of the softmax's size.
    """
    for index, event in enumerate(events):
        if event.kind == "fused":
            yield Attention(index, index, event.key, event.output)
        if (
            event.kind != "softmax"
            or not index
            or events[index - 1].kind != "product"
            or events[index - 1].output != event.output
        ):
            continue
        for last, product in enumerate(events[index + 1 : index + 2 + MAX_VALUE_PRODUCTS], index + 1):
            if product.kind != "product":
                break
            if event.output in product.inputs:
                key = tuple(part.key for part in events[index - 1 : last + 1])
                yield Attention(index - 1, last, key, product.output)
                break


def _products_between(
    events: Sequence[AttentionEvent], first: Attention, second: Attention
) -> tuple[tuple[object, ...], ...] | None:
    """Return the keys of the products between two attentions, None for too many products or other events."""
    between = events[first.last + 1 : second.first]
    if len(between) > MAX_OWN_PRODUCTS or any(event.kind != "product" for event in between):
        return None
    return tuple(event.key for event in between)


def _are_joined(
    events: Sequence[AttentionEvent], ends: Sequence[int], next_position: int, output: int, *, may_be_copied: bool
) -> bool:
    """Return whether operators before ``next_position`` join the results of heads.

    The heads end at the positions ``ends``, and each result has ``output`` elements. One operator joins all results. With
    ``may_be_copied``, a copy of each result also counts.
    """
    if any(event.inputs == (output,) * len(ends) for event in events[ends[-1] + 1 : next_position]):
        return True
    is_copied = [
        any(event.kind == "join" and event.inputs == (output,) for event in events[end + 1 : next_end])
        for end, next_end in zip(ends, [*ends[1:], next_position], strict=True)
    ]
    return may_be_copied and all(is_copied)
