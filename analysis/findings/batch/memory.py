"""Memory of a step at other batch sizes: the allocator's blocks that stay, and those that grow.

These blocks stay: parameters, the optimizer's state and its temporary memory, gradients, and autocast's 16-bit copies of
parameters. A part of an operator's scratch memory also stays: the size of its parameters, and cuDNN's extra memory for each
recurrent layer. All other memory that a step allocates grows with the batch.
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

NEVER = 2**63 - 1
GRAIN = 512  # In bytes. The allocator rounds up to a multiple of this.

# A block is an allocation and the next event of its address, which frees it. A block that is never freed ends after all
# others.
_BLOCKS = f"""
SELECT time_ns AS start_ns, bytes, thread_id, coalesce(lead(time_ns) OVER (PARTITION BY address ORDER BY time_ns, bytes), {NEVER}) AS end_ns
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
    spans = recording.rows("SELECT host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted ORDER BY step", [device])
    events = recording.frame(_TOTALS, [device])
    if events.empty or not spans:
        return None
    blocks = recording.frame(_BLOCKS, [device])
    growing = _growing_bytes(recording, device, blocks)
    # The growing bytes in use at each event. The event that frees a block is also in this table.
    at, total = events["time_ns"].to_numpy(np.int64), events["total"].to_numpy(float)
    change = np.zeros(len(at))
    start, end = (np.searchsorted(at, blocks[column].to_numpy(np.int64)) for column in ("start_ns", "end_ns"))
    np.add.at(change, start, growing)
    np.add.at(change, end[end < len(at)], -growing[end < len(at)])
    growing_bytes = np.maximum(np.cumsum(change), 0.0)
    inside = [(at >= begin) & (at < until) for begin, until in spans]
    peaks = [[float((total + growing_bytes * (times - 1))[step].max()) for times in factors] for step in inside if step.any()]
    return [float(peak) for peak in np.median(peaks, axis=0)] if peaks else None


def _growing_bytes(recording: Recording, device: int, blocks: pd.DataFrame) -> np.ndarray:
    """Return the bytes of each block that grow with the batch."""
    start, end, size = (blocks[column].to_numpy(np.int64) for column in ("start_ns", "end_ns", "bytes"))
    backward = _spans_of_blocks(recording.frame(_SPANS, [f"^{AUTOGRAD_NODE}"]), blocks) >= 0
    updates = recording.frame(_SPANS, [OPTIMIZER_STEP])
    used_until = updates["start_ns"].to_numpy(np.int64) if len(updates) else _ends_of_steps(recording, device)
    gradients = (end > np.append(used_until, NEVER - 1)[np.searchsorted(used_until, start)]) | _is_accumulated(
        recording, blocks
    )
    stays = (_spans_of_blocks(updates, blocks) >= 0) | (backward & gradients)
    return np.where(stays, 0.0, size - np.minimum(_fixed_bytes(recording, device, blocks), size))


def _spans_of_blocks(spans: pd.DataFrame, blocks: pd.DataFrame) -> np.ndarray:
    """Return for each block the last of ``spans`` that began before the block on its thread.

    The value is -1 if this span ended before the block began.
    """
    innermost = np.full(len(blocks), -1, np.int64)
    threads, at = blocks["thread_id"].to_numpy(), blocks["start_ns"].to_numpy(np.int64)
    for thread, part in spans.groupby("thread_id", sort=False):
        of_thread = np.flatnonzero(threads == thread)
        last = np.searchsorted(part["start_ns"].to_numpy(np.int64), at[of_thread], side="right") - 1
        inside = (last >= 0) & (part["end_ns"].to_numpy(np.int64)[last] > at[of_thread])
        innermost[of_thread[inside]] = part.index.to_numpy()[last[inside]]
    return innermost


def _ends_of_steps(recording: Recording, device: int) -> np.ndarray:
    return np.array(recording.rows("SELECT host_end_ns FROM steps WHERE device = ? ORDER BY 1", [device]), np.int64).reshape(-1)


def _is_accumulated(recording: Recording, blocks: pd.DataFrame) -> np.ndarray:
    """Return which blocks autograd accumulated as a parameter's gradient.

    Each accumulation is matched with the latest earlier block of the gradient's size.
    """
    rows = recording.rows(
        "SELECT o.start_ns, s.input_dims, s.input_types FROM cpu_ops o JOIN names USING (name_id) JOIN signatures s USING (signature_id) WHERE name = ?",
        [GRADIENTS],
    )
    times: dict[int, list[int]] = {}
    for at, dims, types in rows:
        times.setdefault(-int(-_bytes(dims, types) // GRAIN) * GRAIN, []).append(at)
    marked = np.zeros(len(blocks), bool)
    start, end, size = (blocks[column].to_numpy(np.int64) for column in ("start_ns", "end_ns", "bytes"))
    for bytes_, moments in times.items():
        same_size, at = np.flatnonzero(size == bytes_), np.array(moments, np.int64)
        if len(same_size):
            last = np.searchsorted(start[same_size], at, side="right") - 1
            marked[same_size[last[(last >= 0) & (end[same_size[last]] > at)]]] = True
    return marked


def _fixed_bytes(recording: Recording, device: int, blocks: pd.DataFrame) -> np.ndarray:
    """Return the bytes of each block that do not depend on the batch.

    For the cast of a parameter, these are all bytes. For an operator's scratch memory, they are the size of its parameters. The
    scratch memory of a recurrent layer is the largest block that the layer frees again. It has extra space for each layer and
    direction.
    """
    parameter_shapes = frozenset(parameters_of(recording, device))
    signatures = recording.rows("SELECT signature_id, input_dims, input_types FROM signatures WHERE input_dims IS NOT NULL")
    sizes = {int(key): size for key, dims, types in signatures if (size := _bytes(dims, types, parameter_shapes))}
    operators = recording.frame(
        "SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns, signature_id, name FROM named_cpu_ops "
        "WHERE starts_with(name, 'aten::') AND signature_id IN (SELECT unnest($1::INTEGER[])) ORDER BY start_ns, end_ns DESC",
        [list(sizes)],
    )
    fixed_bytes, innermost = np.zeros(len(blocks)), _spans_of_blocks(operators, blocks)
    inside = np.flatnonzero(innermost >= 0)
    of_blocks = operators.iloc[innermost[inside]]
    operator_bytes = np.array([sizes[int(key)] for key in of_blocks["signature_id"]], float)
    freed = blocks["end_ns"].to_numpy(np.int64)[inside] <= of_blocks["end_ns"].to_numpy(np.int64)
    recurrent = of_blocks["name"].isin(RECURRENT).to_numpy(bool)
    shapes = {int(key): dims for key, dims, _ in signatures}
    operator_bytes[recurrent] += [
        SCRATCH_BYTES * layers_and_directions(json.loads(shapes[int(key)])) for key in of_blocks["signature_id"][recurrent]
    ]
    bytes_freed = pd.Series(np.where(freed, blocks["bytes"].to_numpy(float)[inside], 0.0))
    largest = bytes_freed.groupby(innermost[inside]).transform("max").eq(bytes_freed).to_numpy(bool)
    of_cast = (of_blocks["name"] == "aten::_to_copy").to_numpy(bool)
    fixed_bytes[inside] = np.where(of_cast, np.inf, np.where(freed & (largest | ~recurrent), operator_bytes, 0.0))
    return fixed_bytes


@lru_cache(maxsize=2000)
def _bytes(dims: str | None, types: str | None, among: frozenset[Shape] | None = None) -> float:
    """Return the bytes of an operator's tensors, or only of those with the shapes in ``among``.

    The types of tensor lists are not recorded, so 32 bits per element are assumed for them.
    """
    return float(_input_bytes(json.loads(dims or "[]"), json.loads(types or "[]"), among))


def _input_bytes(shapes: list[Any], types: Any, among: frozenset[Shape] | None) -> int:
    total = 0
    for place, shape in enumerate(shapes):
        kind = types[place] if isinstance(types, list) and place < len(types) else types
        if isinstance(shape, list) and any(isinstance(inner, list) for inner in shape):
            total += _input_bytes(shape, kind, among)
        elif isinstance(shape, list) and (among is None or tuple(shape) in among):
            dtype = dtype_of_type(kind) if among is None or kind != "TensorList" else "fp32"
            total += numel(shape) * ITEM_BYTES[dtype] if dtype else 0
    return total
