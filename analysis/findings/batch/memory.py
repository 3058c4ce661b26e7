"""Memory of a step at other batch sizes: blocks of constant size, and blocks that grow.

The constant blocks are parameters, gradients, the optimizer's state and temporary memory, and autocast's 16-bit copies of
parameters. Two parts of an operator's scratch memory are also constant: one of the size of the operator's parameters, and
cuDNN's extra memory for each recurrent layer. All other memory that a step allocates grows with the batch.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE, OPTIMIZER_STEP, numel
from sawtooth.analysis.findings.recorded.parameters import GRADIENTS, Shape, parameters_of
from sawtooth.analysis.knowledge.dtypes import ITEM_BYTES, dtype_of_type
from sawtooth.analysis.knowledge.recurrent import RECURRENT, SCRATCH_BYTES, layers_and_directions

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

NEVER_FREED = 2**63 - 1
ROUNDING_BYTES = 512  # The allocator rounds up to a multiple of this size.

# A block is an allocation, and the next event at its address frees the block.
_BLOCKS = f"""
SELECT time_ns AS start_ns, bytes, thread_id, coalesce(lead(time_ns) OVER (PARTITION BY address ORDER BY time_ns, bytes), {NEVER_FREED}) AS end_ns
FROM allocations WHERE device_type <> 0 AND device = ? QUALIFY bytes > 0 ORDER BY time_ns"""
_TOTALS = (
    "SELECT time_ns, total_allocated_bytes AS total FROM allocations WHERE device_type <> 0 AND device = ? ORDER BY time_ns"
)
_SPANS = (
    "SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM named_cpu_ops WHERE regexp_matches(name, ?) ORDER BY start_ns"
)


def memory_at(recording: Recording, device: int, factors: Sequence[float]) -> list[float] | None:
    """Return the bytes allocated at the peak of a step, for each batch factor.

    None if the trace has no allocations.
    """
    steps = recording.rows("SELECT host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted ORDER BY step", [device])
    events = recording.frame(_TOTALS, [device])
    if events.empty or not steps:
        return None
    time_ns, total_bytes = events["time_ns"].to_numpy(np.int64), events["total"].to_numpy(float)
    growing_bytes = _growing_bytes_in_use(recording, device, time_ns)
    in_steps = [(time_ns >= start) & (time_ns < end) for start, end in steps]
    peaks = [
        [float((total_bytes + growing_bytes * (times - 1))[in_step].max()) for times in factors]
        for in_step in in_steps
        if in_step.any()
    ]
    return [float(peak) for peak in np.median(peaks, axis=0)] if peaks else None


def _growing_bytes_in_use(recording: Recording, device: int, time_ns: np.ndarray) -> np.ndarray:
    """Return the growing bytes in use at each of the allocator's events, which ``time_ns`` has in order."""
    blocks = recording.frame(_BLOCKS, [device])
    block_bytes = _growing_bytes(recording, device, blocks)
    change = np.zeros(len(time_ns))
    allocated, freed = (np.searchsorted(time_ns, blocks[column].to_numpy(np.int64)) for column in ("start_ns", "end_ns"))
    np.add.at(change, allocated, block_bytes)
    is_freed = freed < len(time_ns)
    np.add.at(change, freed[is_freed], -block_bytes[is_freed])
    return np.maximum(np.cumsum(change), 0.0)


def _growing_bytes(recording: Recording, device: int, blocks: pd.DataFrame) -> np.ndarray:
    start, end, size = (blocks[column].to_numpy(np.int64) for column in ("start_ns", "end_ns", "bytes"))
    in_backward = _spans_of_blocks(recording.frame(_SPANS, [f"^{AUTOGRAD_NODE}"]), blocks) >= 0
    updates = recording.frame(_SPANS, [OPTIMIZER_STEP])
    update_ns = updates["start_ns"].to_numpy(np.int64) if len(updates) else _ends_of_steps(recording, device)
    next_update_ns = np.append(update_ns, NEVER_FREED - 1)[np.searchsorted(update_ns, start)]
    is_gradient = in_backward & ((end > next_update_ns) | _is_accumulated(recording, blocks))
    is_constant = is_gradient | (_spans_of_blocks(updates, blocks) >= 0)
    return np.where(is_constant, 0.0, size - np.minimum(_constant_bytes(recording, device, blocks), size))


def _spans_of_blocks(spans: pd.DataFrame, blocks: pd.DataFrame) -> np.ndarray:
    """Return the index of the last of ``spans`` that began before each block on the block's thread.

    The index is -1 if this span ended before the block began.
    """
    span_index = np.full(len(blocks), -1, np.int64)
    threads, start_ns = blocks["thread_id"].to_numpy(), blocks["start_ns"].to_numpy(np.int64)
    for thread, thread_spans in spans.groupby("thread_id", sort=False):
        on_thread = np.flatnonzero(threads == thread)
        last = np.searchsorted(thread_spans["start_ns"].to_numpy(np.int64), start_ns[on_thread], side="right") - 1
        inside = (last >= 0) & (thread_spans["end_ns"].to_numpy(np.int64)[last] > start_ns[on_thread])
        span_index[on_thread[inside]] = thread_spans.index.to_numpy()[last[inside]]
    return span_index


def _ends_of_steps(recording: Recording, device: int) -> np.ndarray:
    return np.array(recording.rows("SELECT host_end_ns FROM steps WHERE device = ? ORDER BY 1", [device]), np.int64).reshape(-1)


def _is_accumulated(recording: Recording, blocks: pd.DataFrame) -> np.ndarray:
    """Return which blocks autograd accumulated as a parameter's gradient.

    The block of an accumulation is the latest earlier block of the gradient's size.
    """
    rows = recording.rows(
        "SELECT o.start_ns, s.input_dims, s.input_types FROM cpu_ops o JOIN names USING (name_id) JOIN signatures s USING (signature_id) WHERE name = ?",
        [GRADIENTS],
    )
    moments_by_size: dict[int, list[int]] = {}
    for start_ns, dims, types in rows:
        rounded_bytes = -int(-_bytes(dims, types) // ROUNDING_BYTES) * ROUNDING_BYTES
        moments_by_size.setdefault(rounded_bytes, []).append(start_ns)
    is_accumulated = np.zeros(len(blocks), bool)
    start, end, size = (blocks[column].to_numpy(np.int64) for column in ("start_ns", "end_ns", "bytes"))
    for gradient_bytes, start_times in moments_by_size.items():
        candidates, moments = np.flatnonzero(size == gradient_bytes), np.array(start_times, np.int64)
        if len(candidates):
            last = np.searchsorted(start[candidates], moments, side="right") - 1
            in_use = (last >= 0) & (end[candidates[last]] > moments)
            is_accumulated[candidates[last[in_use]]] = True
    return is_accumulated


def _constant_bytes(recording: Recording, device: int, blocks: pd.DataFrame) -> np.ndarray:
    """Return the bytes of each block that do not depend on the batch.

    For the cast of a parameter, these are all bytes. For an operator's scratch memory, these are the size of the operator's
    parameters. The scratch memory of a recurrent layer is the largest block that the layer frees. This block also has constant
    space for each layer and direction.
    """
    parameter_shapes = frozenset(parameters_of(recording, device))
    signatures = recording.rows("SELECT signature_id, input_dims, input_types FROM signatures WHERE input_dims IS NOT NULL")
    sizes = {int(key): size for key, dims, types in signatures if (size := _bytes(dims, types, parameter_shapes))}
    operators = recording.frame(
        "SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns, signature_id, name FROM named_cpu_ops "
        "WHERE starts_with(name, 'aten::') AND signature_id IN (SELECT unnest($1::INTEGER[])) ORDER BY start_ns, end_ns DESC",
        [list(sizes)],
    )
    constant_bytes, operator_index = np.zeros(len(blocks)), _spans_of_blocks(operators, blocks)
    inside = np.flatnonzero(operator_index >= 0)
    block_operators = operators.iloc[operator_index[inside]]
    operator_bytes = np.array([sizes[int(key)] for key in block_operators["signature_id"]], float)
    is_recurrent = block_operators["name"].isin(RECURRENT).to_numpy(bool)
    shapes = {int(key): dims for key, dims, _ in signatures}
    operator_bytes[is_recurrent] += [
        SCRATCH_BYTES * layers_and_directions(json.loads(shapes[int(key)]))
        for key in block_operators["signature_id"][is_recurrent]
    ]
    is_scratch = blocks["end_ns"].to_numpy(np.int64)[inside] <= block_operators["end_ns"].to_numpy(np.int64)
    scratch_bytes = pd.Series(np.where(is_scratch, blocks["bytes"].to_numpy(float)[inside], 0.0))
    is_largest = scratch_bytes.groupby(operator_index[inside]).transform("max").eq(scratch_bytes).to_numpy(bool)
    is_cast = (block_operators["name"] == "aten::_to_copy").to_numpy(bool)
    scratch_part = np.where(is_scratch & (is_largest | ~is_recurrent), operator_bytes, 0.0)
    constant_bytes[inside] = np.where(is_cast, np.inf, scratch_part)
    return constant_bytes


@lru_cache(maxsize=2000)
def _bytes(dims: str | None, types: str | None, only_shapes: frozenset[Shape] | None = None) -> float:
    """Return the bytes of an operator's tensors, or only of those with a shape in ``only_shapes``.

    The elements of a tensor list with such a shape count as 32 bits, because the list's types are not recorded.
    """
    return float(_input_bytes(json.loads(dims or "[]"), json.loads(types or "[]"), only_shapes))


def _input_bytes(shapes: list[Any], types: Any, only_shapes: frozenset[Shape] | None) -> int:
    total = 0
    for index, shape in enumerate(shapes):
        type_name = types[index] if isinstance(types, list) and index < len(types) else types
        if isinstance(shape, list) and any(isinstance(inner, list) for inner in shape):
            total += _input_bytes(shape, type_name, only_shapes)
        elif isinstance(shape, list) and (only_shapes is None or tuple(shape) in only_shapes):
            dtype = dtype_of_type(type_name) if only_shapes is None or type_name != "TensorList" else "fp32"
            total += numel(shape) * ITEM_BYTES[dtype] if dtype else 0
    return total
