"""Micro-batches of equal shapes whose gradients a step accumulates, and fewer, larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sawtooth.analysis.findings.batch.memory import memory_at
from sawtooth.analysis.findings.batch.step import kernels_for_batch
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.findings.recorded.counted_operations import launched_by_optimizer
from sawtooth.analysis.replay.edits import Edit, WithoutCalls, WithoutOps

I64 = NDArray[np.int64]

ACCUMULATIONS = r"^torch::autograd::AccumulateGrad$"
MAX_USED_SHARE = 0.9  # Of the GPU's memory. The allocator needs some space between its blocks.


@dataclass(frozen=True)
class MicroBatch:
    """Positions in ``RuleContext.work`` of the operations of one micro-batch.

    ``added`` are the operations that add its gradients to those of earlier micro-batches. They are no part of ``backward``.
    """

    forward: I64
    backward: I64
    added: I64


def accumulated_steps(context: RuleContext) -> list[list[MicroBatch]]:
    """Return the micro-batches of each step that accumulates gradients of equal shapes.

    The result is empty if a step does not accumulate, or if the steps have different numbers of micro-batches. It is also
    empty if ranks communicate before the last micro-batch, or if an optimizer steps between two micro-batches.
    """
    work = context.work
    count = len(work)
    in_backward, is_added, is_update = (np.zeros(count, bool) for _ in range(3))
    in_backward[context.launches.launched_in_backward()] = True
    is_added[context.launches.launched_during(np.array(operators(context, ACCUMULATIONS).ids, np.int64))] = True
    if not (in_backward.any() and is_added.any()):
        return []
    is_update[work["gpu_op_id"].isin(launched_by_optimizer(context.recording, context.rank.device))] = True
    communicates = (work["category"] == "communication").to_numpy(bool)
    kind = work.groupby(["operator", "signature_id"], dropna=False, sort=False).ngroup().to_numpy(np.int64)
    steps: list[list[MicroBatch]] = []
    for positions in work.groupby("step").indices.values():
        computing = np.sort(positions[~communicates[positions]])
        backward_ends = np.flatnonzero(np.diff(in_backward[computing].astype(np.int8), append=0) < 0)
        if len(backward_ends) < 2:
            return []
        first_end, last_end = computing[backward_ends[[0, -1]]]
        inside = positions[(positions > first_end) & (positions < last_end)]
        last_backward = computing[backward_ends[-2] + 1 :]
        last_start = last_backward[in_backward[last_backward]][0]
        if is_update[inside].any() or communicates[positions[positions < last_start]].any():
            return []
        micro_batches = _micro_batches(np.split(computing, backward_ends + 1)[:-1], in_backward, is_added, kind)
        if not micro_batches or (steps and len(micro_batches) != len(steps[0])):
            return []
        steps.append(micro_batches)
    return steps


def _micro_batches(
    parts: Sequence[I64], in_backward: NDArray[np.bool_], is_added: NDArray[np.bool_], kind: I64
) -> list[MicroBatch]:
    """Return the micro-batches of the ``parts`` of a step, which end with a backward pass each.

    Empty if their shapes differ, or if later ones do not add gradients to those of the first one. Before its first micro-batch, a
    step may do other work.
    """
    micro_batches = [
        MicroBatch(part[~in_backward[part]], part[in_backward[part] & ~is_added[part]], part[is_added[part]]) for part in parts
    ]
    last, later = micro_batches[-1], micro_batches[1:]
    length = len(last.forward)
    first = replace(micro_batches[0], forward=micro_batches[0].forward[len(micro_batches[0].forward) - length :])
    same_shapes = all(
        np.array_equal(kind[batch.forward], kind[last.forward]) and np.array_equal(kind[batch.backward], kind[last.backward])
        for batch in (first, *later)
    )
    accumulates = all(len(batch.added) > len(first.added) for batch in later)
    return [first, *later] if length and same_shapes and accumulates else []


def micro_batches_that_fit(context: RuleContext, number: int) -> int:
    """Return the smallest number of equal micro-batches whose memory surely fits.

    It divides ``number``. Without allocations in the trace, all memory in use is assumed to grow with a micro-batch. 1 if the memory is not known.
    """
    numbers = [fewer for fewer in range(1, number + 1) if number % fewer == 0]
    memory = memory_use(context)
    if memory is None:
        return 1
    used_bytes, total_bytes = memory
    factors = [number / fewer for fewer in numbers]
    peaks = memory_at(context.recording, context.rank.device, factors)
    needed = [used_bytes * times for times in factors]
    if peaks is not None:  # The rest of the memory in use does not depend on the batch.
        needed = [min(needed_bytes, used_bytes + peak - peaks[-1]) for needed_bytes, peak in zip(needed, peaks, strict=True)]
    return next(
        fewer for fewer, size in zip(numbers, needed, strict=True) if size <= MAX_USED_SHARE * total_bytes or fewer == number
    )


def merging_edits(context: RuleContext, steps: Sequence[Sequence[MicroBatch]], remaining: int) -> list[Edit]:
    """Return the edits that run ``remaining`` micro-batches per step, each with the samples of several.

    The first forward passes stay. The last backward pass stays, because it may communicate. Their kernels take the time for a
    larger batch. The launches of the others, and the host's time between them, disappear. Time of the loader stays.
    """
    times = len(steps[0]) // remaining
    remaining_rows: list[I64] = []
    removed: list[I64] = []
    for step in steps:
        backward = [*step[: remaining - 1], step[-1]]
        remaining_rows += [batch.forward for batch in step[:remaining]] + [batch.backward for batch in backward]
        added = [batch.added for batch in backward] if remaining > 1 else []
        every = np.concatenate([np.concatenate([batch.forward, batch.backward, batch.added]) for batch in step])
        removed.append(np.setdiff1d(every, np.concatenate([*remaining_rows[-2 * remaining :], *added])))
    work = context.work
    removed_ops = work["gpu_op_id"].to_numpy(np.int64)[np.concatenate(removed)]
    return [
        kernels_for_batch(context, work.iloc[np.sort(np.concatenate(remaining_rows))], times),
        WithoutOps(tuple(removed_ops.tolist()), host_too=False),
        WithoutCalls(_calls_between(context, removed_ops)),
    ]


def _calls_between(context: RuleContext, removed_ops: I64) -> tuple[int, ...]:
    """Return the calls that launched ``removed_ops``, and calls between them that launched nothing else."""
    rows = context.recording.rows(
        "WITH launching AS (SELECT c.call_id, c.start_ns, bool_and(g.gpu_op_id IN (SELECT unnest(?::BIGINT[]))) AS removed "
        "FROM runtime_calls c LEFT JOIN gpu_ops g USING (call_id) GROUP BY ALL), "
        "placed AS (SELECT call_id, removed, last_value(removed IGNORE NULLS) OVER w AS before, "
        "first_value(removed IGNORE NULLS) OVER (ORDER BY start_ns, call_id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS after "
        "FROM launching WINDOW w AS (ORDER BY start_ns, call_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)) "
        "SELECT call_id FROM placed WHERE coalesce(removed, before AND after) ORDER BY 1",
        [removed_ops.tolist()],
    )
    return tuple(int(call) for (call,) in rows)
