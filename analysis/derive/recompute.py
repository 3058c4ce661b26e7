"""Recomputation: forward operators that run a second time inside backward (activation checkpointing).

Their FLOPs count for HFU and not for MFU. An operator is recomputed if all of these are true:
* It runs inside an autograd node (``autograd::engine::evaluate_function`` or ``…Backward``) of its thread.
* Autograd records it: the operator, or something between it and the innermost such node, has a sequence number. The operators of
  a backward formula (the two ``aten::mm`` of ``AddmmBackward0``) have none, because they run with gradients off. The second
  forward of a checkpoint runs with gradients on. The reentrant checkpoint runs the operator inside
  ``CheckpointFunctionBackward``. The other form runs it inside the node that first needs a saved tensor.
* An operator of the same name and input shapes ran outside backward. This excludes double backward, which autograd also records.
If no operator has a sequence number, only operators directly inside a node called Checkpoint count. Compiled regions recompute
inside one fused backward graph, so their operators do not show recomputation.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I64, TraceEvents

_BACKWARD_NODE = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$|^torch::autograd::CppNode")
_CHECKPOINT_NODE = re.compile(r"checkpoint", re.IGNORECASE)


def is_recomputed_work(events: TraceEvents, flop_operators: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which of ``flop_operators`` (aligned with cpu_op_id) repeat forward work inside backward."""
    ops = events.ops
    result = np.zeros(len(ops), bool)
    products = np.flatnonzero(flop_operators)
    if not len(products):
        return result
    node = _has_name(events, _BACKWARD_NODE)
    checkpoint = node & _has_name(events, _CHECKPOINT_NODE)
    enclosing, recorded = _innermost_node(ops.parent, ops.sequence, node, products)
    inside = enclosing >= 0
    is_recomputed = inside & recorded if (ops.sequence[~node] >= 0).any() else inside & checkpoint[np.maximum(enclosing, 0)]
    forward = {(ops.name[i], ops.signature[i]) for i in products[~inside]}
    twin = np.fromiter(((ops.name[i], ops.signature[i]) in forward for i in products), bool, len(products))
    result[products[is_recomputed & twin]] = True
    return result


def _has_name(events: TraceEvents, pattern: re.Pattern[str]) -> NDArray[np.bool_]:
    matches = np.fromiter((bool(pattern.search(name)) for name in events.names), bool, len(events.names))
    return matches[events.ops.name] if len(events.ops) else np.zeros(0, bool)


def _innermost_node(parent: I64, sequence: I64, node: NDArray[np.bool_], start_at: I64) -> tuple[I64, NDArray[np.bool_]]:
    """Return the innermost autograd node around each operator, and whether autograd recorded it.

    The node is -1 if there is none. The second value is true if the operator, or anything between it and the node, has a sequence
    number.
    """
    enclosing = parent[start_at].astype(np.int64)
    recorded = sequence[start_at] >= 0
    while (climb := (enclosing >= 0) & ~node[np.maximum(enclosing, 0)]).any():
        recorded[climb] |= sequence[enclosing[climb]] >= 0
        enclosing[climb] = parent[enclosing[climb]]
    return enclosing, recorded
