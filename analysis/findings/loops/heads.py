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
from sawtooth.analysis.findings.queries.passes import Passes, in_backward, passes
from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.knowledge.kernel_work import product_work

MIN_HEADS = 3  # Heads. Two equal attentions can be the two directions between two sequences.
MAX_BETWEEN = 3  # Products between two heads: a head's own queries, keys and values.
OWN_VALUES = 1  # Products between a softmax and the product with the values: the projection of the head's own values.
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

    ``key`` is equal for calls of one operator with the same shapes. ``inputs`` are the element counts of the inputs, of a join the
    tensors that it joins or copies. ``output`` is the element count of the result.
    """

    kind: Kind
    key: tuple[object, ...]
    op: int
    inputs: tuple[int, ...] = ()
    output: int = 0


class Attention(NamedTuple):
    """An attention: the positions of its first and last event, a key of its shapes, its result's size.

    The size is the element count.
    """

    first: int
    last: int
    key: tuple[object, ...]
    output: int


@once
def head_loops(context: RuleContext) -> list[HeadLoop]:
    """Return the attentions of the counted steps whose heads run one after the other.

    Heads are MIN_HEADS attentions or more of equal shapes that follow one another. Only products of their own queries, keys and
    values may lie between them. One operator joins their results, or each result is copied to its place. Layers of a model also
    follow one another, but nothing joins exactly their results.
    """
    work = context.work
    attentions = work["operator"].isin(SOFTMAX) | (work["category"] == "attention")
    if int(attentions.sum()) < MIN_HEADS * context.work_steps:
        return []
    forward = work[~work["gpu_op_id"].isin(in_backward(context))].sort_values("start_ns", kind="stable")
    loops = []
    for _, rows in forward.groupby("step"):
        for heads, ops in _loops(list(_events(rows))):
            begun = context.launches.begun_between(np.array(ops, np.int64)).tolist()
            loops.append(HeadLoop(heads, passes(context, [*_slices_before(context, begun, heads), *begun])))
    return loops


def _slices_before(context: RuleContext, begun: Sequence[int], heads: int) -> list[int]:
    """Return the first head's slices before its first product, so before the operators ``begun``.

    Every head has the same number of slices, so those that are missing among ``begun`` come directly before.
    """
    slices = operators(context, SLICES).frame
    inside = slices[slices["id"].isin(begun)]
    if inside.empty:
        return []
    missing = -len(inside) % heads
    before = slices[(slices["id"] < min(begun)) & (slices["thread_id"] == inside["thread_id"].iloc[0])]
    return [int(op) for op in before["id"].tail(missing)] if missing else []


def _events(rows: pd.DataFrame) -> Iterator[AttentionEvent]:
    """Yield the events of one step's forward pass. An operator with several kernels is one event."""
    described: dict[int, AttentionEvent | None] = {}
    previous = -1
    for kind, row, launched_by, counted in zip(
        *(rows[name].tolist() for name in ("launch_kind", "example", "cpu_op_id", "flop_op_id")), strict=True
    ):
        if kind not in described:
            described[kind] = _describe(row)
        event = described[kind]
        if event is None:
            continue
        op = counted if event.kind in ("product", "fused") else launched_by
        op = int(op) if pd.notna(op) else -1
        if op != previous or op < 0:
            previous = op
            yield event._replace(op=op)


def _describe(row: Any) -> AttentionEvent | None:
    """Return the event of a row of ``RuleContext.work``, without its operator; None for other work."""
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
    """Yield the number of heads of each loop in a step, and the ids of its operators."""
    places = [place for place, event in enumerate(events) if event.kind != "join"]
    flow = [events[place] for place in places]
    heads = list(_heads(flow))
    between = [_products_between(flow, one, other) for one, other in pairwise(heads)]
    at = 0
    while at < len(heads):
        end = at + 1
        while (
            end < len(heads) and between[at] is not None and between[end - 1] == between[at] and heads[end].key == heads[at].key
        ):
            end += 1
        own = len(between[at] or ()) if end > at + 1 else 0
        first, last = heads[at].first - own, heads[end - 1].last
        own_match = own == 0 or (first >= 0 and tuple(event.key for event in flow[first : first + own]) == between[at])
        after = places[last + 1] if last + 1 < len(places) else len(events)
        if (
            end - at >= MIN_HEADS
            and own_match
            and _joined(events, [places[head.last] for head in heads[at:end]], after, heads[at].output, own)
        ):
            yield end - at, [event.op for event in flow[first : last + 1] if event.op >= 0]
        at = end if end - at >= MIN_HEADS else max(end - 1, at + 1)


def _heads(flow: Sequence[AttentionEvent]) -> Iterator[Attention]:
    """Yield the attentions among the events: fused ones, and a softmax between two products of its size."""
    for place, event in enumerate(flow):
        if event.kind == "fused":
            yield Attention(place, place, event.key, event.output)
        if event.kind != "softmax" or not place or flow[place - 1].kind != "product" or flow[place - 1].output != event.output:
            continue
        for last, other in enumerate(flow[place + 1 : place + 2 + OWN_VALUES], place + 1):
            if other.kind != "product":
                break
            if event.output in other.inputs:
                yield Attention(place - 1, last, tuple(each.key for each in flow[place - 1 : last + 1]), other.output)
                break


def _products_between(
    flow: Sequence[AttentionEvent], one: Attention, other: Attention
) -> tuple[tuple[object, ...], ...] | None:
    """Return the keys of the products between two attentions; None if there are too many, or other events."""
    events = flow[one.last + 1 : other.first]
    if len(events) > MAX_BETWEEN or any(event.kind != "product" for event in events):
        return None
    return tuple(event.key for event in events)


def _joined(events: Sequence[AttentionEvent], ends: Sequence[int], after: int, output: int, own: int) -> bool:
    """Return whether the results of heads that end at the positions ``ends`` are joined before ``after``.

    One operator joins them all. If the heads have no products of their own, each may also be copied to its place.
    """
    if any(event.inputs == (output,) * len(ends) for event in events[ends[-1] + 1 : after]):
        return True
    copied = [
        any(event.kind == "join" and event.inputs == (output,) for event in events[end + 1 : until])
        for end, until in zip(ends, [*ends[1:], after], strict=True)
    ]
    return own == 0 and all(copied)
