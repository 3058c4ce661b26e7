"""GPU time by nn.Module: forward by the module's call, backward by the autograd sequence number.

With ``with_stack=True`` the profiler records every call of a module as a Python call named ``nn.Module: Linear_0`` on the
calling thread. Backward runs on autograd's thread, where no module is called. There an operator has the sequence number of the
forward operator that made its node. The module of this forward operator owns the backward operator too. If several operators have
one number, the operator that began last made the node, because autograd increments the number when it makes the node.
Kernels of a replayed CUDA graph have no operators. If the capture named the kernels, each name is a node of its own.
Time outside all modules (loss, optimizer, sums of gradients, copies) is listed separately.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sawtooth.analysis.derive.events import I32, I64, CpuOps, TraceEvents
from sawtooth.analysis.derive.flop_counts import FlopCounts
from sawtooth.analysis.derive.host import HostFacts, matches_of
from sawtooth.analysis.derive.operators import innermost_interval, nearest_marked_operator, subtree_sums

MODULE = re.compile(r"^nn\.Module: ")
# Deepest nesting of backward passes. A recomputed forward pass has its own backward pass, and double backward adds another.
NESTED_BACKWARDS = 4


@dataclass(frozen=True)
class ModuleTree:
    """Modules as a tree of calls, with one node per place in the tree.

    ``name`` and ``parent`` (-1 at the top) are by node, parents first. The calls are ordered by start: ``thread``, ``start``,
    ``end``, ``caller`` (the enclosing call, -1 for none) and ``node``.
    """

    name: I32
    parent: I64
    thread: I32
    start: I64
    end: I64
    caller: I64
    node: I64


@dataclass(frozen=True)
class ModuleWork:
    """Owning module and phase of each GPU operation, by gpu_op_id.

    ``node`` is the node of the tree that owns the operation (-1 outside every module). ``backward`` is true in the backward
    phase.
    """

    tree: ModuleTree
    node: I64
    backward: NDArray[np.bool_]

    @classmethod
    def without_calls(cls, operations: int) -> ModuleWork:
        """Return the work of a trace without module calls, all of it outside modules."""
        none, small = np.empty(0, np.int64), np.empty(0, np.int32)
        tree = ModuleTree(name=small, parent=none, thread=small, start=none, end=none, caller=none, node=none)
        return cls(tree, np.full(operations, -1, np.int64), np.zeros(operations, bool))


def module_work(events: TraceEvents, facts: HostFacts) -> ModuleWork | None:
    """Assign each GPU operation to its module; None if neither module calls nor names are recorded."""
    is_module = matches_of(events.names, MODULE)[facts.python_name] if len(facts.python_name) else np.zeros(0, bool)
    if not is_module.any():
        return _in_graphs(ModuleWork.without_calls(len(events.gpu)), facts) if len(facts.annotated_op) else None
    in_backward = _is_backward(events.ops)
    tree = _tree(events, facts, is_module, in_backward)
    node, backward = np.full(len(events.gpu), -1, np.int64), np.zeros(len(events.gpu), bool)
    linked = np.flatnonzero(events.gpu.call >= 0)
    call = events.gpu.call[linked]
    made_by = forward_operators(events.ops)
    node[linked], backward[linked] = _owner(
        tree=tree,
        ops=events.ops,
        in_backward=in_backward,
        made_by=made_by,
        thread=events.calls.thread[call],
        moment=events.calls.start[call],
        op=events.gpu.cpu_op[linked],
    )
    return _in_graphs(ModuleWork(tree, node, backward), facts)


def _in_graphs(work: ModuleWork, facts: HostFacts) -> ModuleWork:
    """Add a node for each name of kernels in a CUDA graph, inside the module that launches it."""
    op, tree = facts.annotated_op, work.tree
    if not len(op):
        return work
    places = np.stack([work.node[op], facts.annotated_name.astype(np.int64)])
    keys, first, key_of = np.unique(places, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first)  # The order in which the kernels run.
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order)) + len(tree.name)
    parent, name = keys[:, order]
    node, backward = work.node.copy(), work.backward.copy()
    node[op], backward[op] = number[key_of.reshape(-1)], facts.annotated_backward
    tree = replace(tree, name=np.append(tree.name, name.astype(np.int32)), parent=np.append(tree.parent, parent))
    return ModuleWork(tree, node, backward)


def _is_backward(ops: CpuOps) -> NDArray[np.bool_]:
    return (ops.forward_thread > 0) & (ops.sequence >= 0) & ~ops.annotation


def _tree(events: TraceEvents, facts: HostFacts, is_module: NDArray[np.bool_], in_backward: NDArray[np.bool_]) -> ModuleTree:
    call = np.flatnonzero(is_module)
    enclosing = nearest_marked_operator(is_module, facts.python_parent, facts.python_parent[call])
    caller = np.where(enclosing >= 0, np.searchsorted(call, enclosing), -1)
    thread, start, names = facts.python_thread[call], facts.python_start[call], facts.python_name[call]
    ops = events.ops
    holder = innermost_interval(thread=ops.thread, start=ops.start, end=ops.end, parent=ops.parent, at_thread=thread, at=start)
    is_recomputed = (caller < 0) & (nearest_marked_operator(in_backward, ops.parent, holder) >= 0)
    node = np.full(len(call), -1, np.int64)
    place: dict[tuple[int, int], int] = {}
    first: dict[int, int] = {}  # The module's node in the forward pass, by name.
    for i, (name, above, recomputed) in enumerate(zip(names.tolist(), caller.tolist(), is_recomputed.tolist(), strict=True)):
        if recomputed and name in first:
            node[i] = first[name]
            continue
        key = (int(node[above]) if above >= 0 else -1, name)
        node[i] = place.setdefault(key, len(place))
        first.setdefault(name, int(node[i]))
    keys = np.array(list(place), dtype=np.int64).reshape(-1, 2)
    return ModuleTree(
        name=keys[:, 1].astype(np.int32),
        parent=keys[:, 0],
        thread=thread,
        start=start,
        end=facts.python_end[call],
        caller=caller,
        node=node,
    )


def forward_operators(ops: CpuOps) -> I64:
    """Return, for each backward operator, the operator that made its autograd node; -1 for all others.

    The result is also -1 if the trace does not contain the forward operator. Sequence numbers count separately in each
    forward thread, and traces number these threads in their own way. Each number is matched with the host thread that has the
    largest share of its sequence numbers. The clearest matches come first. If two threads fit equally well (replicas in
    threads), there is no match.
    """
    made_by = np.full(len(ops), -1, np.int64)
    backward = np.flatnonzero(_is_backward(ops))
    forward = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0) & ~ops.annotation)
    count = len(ops) + 1
    number = np.unique(ops.sequence, return_inverse=True)[1].reshape(-1).astype(np.int64)
    twins: dict[tuple[int, int], I64] = {}  # By (the trace's number of a forward thread, host thread).
    for thread in np.unique(ops.thread[forward]).tolist():
        on_thread = forward[ops.thread[forward] == thread]
        keys = np.sort(number[on_thread] * count + on_thread)
        for origin in np.unique(ops.forward_thread[backward]).tolist():
            from_origin = backward[ops.forward_thread[backward] == origin]
            at = (
                np.searchsorted(keys, number[from_origin] * count + from_origin) - 1
            )  # Ids are ordered by start, so this finds the last one before it.
            hit = (at >= 0) & (keys[np.maximum(at, 0)] // count == number[from_origin])
            twins[origin, thread] = np.where(hit, keys[np.maximum(at, 0)] % count, -1)
    while twins:
        shares = {pair: float((forward_ops >= 0).mean()) for pair, forward_ops in twins.items()}
        clear = {
            pair: share
            for pair, share in shares.items()
            if share > 0 and all(share > shares[other] for other in twins if other[0] == pair[0] and other != pair)
        }
        if not clear:
            break
        origin, thread = max(clear, key=lambda pair: clear[pair])
        made_by[backward[ops.forward_thread[backward] == origin]] = twins[origin, thread]
        twins = {pair: forward_ops for pair, forward_ops in twins.items() if pair[0] != origin and pair[1] != thread}
    return made_by


def _owner(
    *, tree: ModuleTree, ops: CpuOps, in_backward: NDArray[np.bool_], made_by: I64, thread: I32, moment: I64, op: I64
) -> tuple[I64, NDArray[np.bool_]]:
    """Return the node that owns a thread's work at each moment, and whether the work is backward work.

    ``op`` is the operator around each moment.
    """
    node, backward = np.full(len(moment), -1, np.int64), np.zeros(len(moment), bool)
    row = np.arange(len(moment))
    for depth in range(NESTED_BACKWARDS):
        call = innermost_interval(
            thread=tree.thread, start=tree.start, end=tree.end, parent=tree.caller, at_thread=thread, at=moment
        )
        enclosing = nearest_marked_operator(in_backward, ops.parent, op)
        inside = (call >= 0) & ((enclosing < 0) | (tree.start[call] >= ops.start[enclosing] if len(ops) else True))
        node[row[inside]] = tree.node[call[inside]]
        if depth == 0:
            backward = enclosing >= 0
        source = np.where(~inside & (enclosing >= 0), made_by[enclosing] if len(ops) else -1, -1)
        open_ = source >= 0
        if not open_.any():
            break
        row, source = row[open_], source[open_]
        thread, moment, op = ops.thread[source], ops.start[source], ops.parent[source]
    return node, backward


def module_table(
    *,
    events: TraceEvents,
    work: ModuleWork,
    selected: NDArray[np.bool_],
    counted_call: NDArray[np.bool_],
    tensor: NDArray[np.bool_],
    flops: FlopCounts,
    devices: list[int],
) -> pd.DataFrame:
    """Return the rows of the derived table ``modules``: each module on each device, and time outside them.

    ``module`` is missing in the row for time outside modules. ``selected`` marks the counted GPU operations, ``tensor`` those that
    use tensor cores, ``counted_call`` the counted module calls. Over all rows of a device, forward_ns + backward_ns equals the
    durations of its selected operations. FLOPs include recomputation.
    """
    tree, gpu = work.tree, events.gpu
    dur = gpu.end - gpu.start
    depth = np.zeros(len(tree.name), np.int64)
    for node, parent in enumerate(tree.parent.tolist()):
        depth[node] = depth[parent] + 1 if parent >= 0 else 0
    host = _host_time(tree, counted_call)
    frames = []
    for device in devices:
        on_device = selected & (gpu.device == device)
        own_times = {
            "forward_ns": _by_node(work, on_device & ~work.backward, dur),
            "backward_ns": _by_node(work, on_device & work.backward, dur),
            "tensor_core_ns": _by_node(work, on_device & tensor, dur),
            "kernels": _by_node(work, on_device, np.ones(len(dur), np.int64)),
            "flops": _flops(work, on_device, flops),
        }
        sums = {
            f"total_{name}": np.append(subtree_sums(values[:-1], tree.parent), values[-1]) for name, values in own_times.items()
        }
        frames.append(pd.DataFrame({"device": device, **own_times, **sums}).assign(**_places(tree, depth, host)))
    return pd.concat(frames, ignore_index=True)


def _places(tree: ModuleTree, depth: I64, host: dict[str, I64]) -> dict[str, Any]:
    """Return the columns that are equal on all devices; the last row is the time outside modules."""

    def column(values: I64) -> Any:
        numbers = pd.array(np.append(values, -1), dtype="Int64")
        numbers[numbers < 0] = pd.NA
        return numbers

    return {
        "module": column(np.arange(len(tree.name))),
        "parent": column(tree.parent),
        "name_id": column(tree.name.astype(np.int64)),
        "depth": np.append(depth, 0),
        **{name: column(values) for name, values in host.items()},
    }


def _by_node(work: ModuleWork, chosen: NDArray[np.bool_], values: I64) -> I64:
    """Sum ``values`` by node; the last entry is the sum outside every module."""
    sums = np.zeros(len(work.tree.name) + 1, np.int64)
    np.add.at(sums, work.node[chosen], values[chosen])  # Node -1 (outside modules) is the last row.
    return sums


def _flops(work: ModuleWork, chosen: NDArray[np.bool_], flops: FlopCounts) -> NDArray[np.float64]:
    """Count each FLOP operator that has a chosen GPU operation once, for the node of its first operation."""
    sums = np.zeros(len(work.tree.name) + 1)
    rows = np.flatnonzero(chosen & (flops.counted_operator_of >= 0))
    counted_operators, first = np.unique(flops.counted_operator_of[rows], return_index=True)
    has_flops = np.isfinite(flops.count[counted_operators]) if len(counted_operators) else np.zeros(0, bool)
    np.add.at(sums, work.node[rows[first[has_flops]]], flops.count[counted_operators[has_flops]])
    return sums


def _host_time(tree: ModuleTree, counted: NDArray[np.bool_]) -> dict[str, I64]:
    """Return, by module, the counted calls, the own host time, and the host time with callees."""
    length = tree.end - tree.start
    own_ns = length.copy()
    called = tree.caller >= 0
    np.subtract.at(own_ns, tree.caller[called], length[called])
    sums = {}
    for name, values in (("calls", np.ones(len(own_ns), np.int64)), ("host_ns", own_ns), ("total_host_ns", length)):
        sums[name] = np.zeros(len(tree.name), np.int64)
        np.add.at(sums[name], tree.node[counted], values[counted])
    return sums
