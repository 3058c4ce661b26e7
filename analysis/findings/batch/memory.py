"""What a step holds in memory, and with a batch so many times as large: what stays between steps, the gradients so far, and activations.

Activations are what is held beyond the least of the step, the gradients that autograd accumulated by then and the 16-bit copies of parameters
that autocast keeps; they alone grow with the batch. What the optimizer holds while it steps stays.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from sawtooth.analysis.findings.work import numel
from sawtooth.analysis.knowledge.dtypes import ITEM_BYTES, dtype_of_type

if TYPE_CHECKING:
    from sawtooth.analysis.store.library import Recording

IN_FLIGHT = 4  # gradients at hand: weight and bias of a layer and of the norm beside it
NEAR_LEAST = 0.02  # above the least in use in a step: a batch that waits for it, an index or two
SIXTEEN_BIT_CODES = ("5", "15")  # PyTorch's numbers of half and bfloat16
GRADIENTS = "torch::autograd::AccumulateGrad"

PASSED = "SELECT DISTINCT in_elements FROM collectives WHERE name IN ('send', 'recv') AND in_elements IS NOT NULL"
ZEROED = "SELECT start_ns, start_ns + dur_ns FROM cpu_ops JOIN names USING (name_id) WHERE starts_with(name, 'Optimizer.zero_grad#') ORDER BY 1"

Shape = tuple[int, ...]

_IN_STEPS = (
    "FROM cpu_ops o JOIN names n USING (name_id) JOIN signatures s USING (signature_id) JOIN steps t ON t.device = ? AND t.counted "
    "AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns"
)


def parameters_of(recording: Recording, device: int) -> Counter[Shape]:
    """Return the shapes of the parameters that got a gradient in a step, and how many have each: as autograd accumulated them.

    A pipeline's stage accumulates the gradient of what it was sent too, to send it back: as many elements as its ranks pass on are no parameter.
    """
    passed = {size for (size,) in recording.rows(PASSED)}
    rows = recording.rows(
        f"SELECT s.input_dims, count(*) / count(DISTINCT t.step) {_IN_STEPS} WHERE n.name = ? GROUP BY 1",
        [device, GRADIENTS],
    )
    shapes: Counter[Shape] = Counter()
    for dims, count in rows:
        for shape in json.loads(dims) if dims else []:
            if isinstance(shape, list) and numel(shape) and numel(shape) not in passed:
                shapes[tuple(shape)] += max(round(float(count)), 1)
    return shapes


def memory_at(recording: Recording, device: int, factors: Sequence[float]) -> list[float] | None:
    """Return the bytes allocated at the peak of a step with so many times the batch, one by one; None where the trace has no allocations."""
    spans = recording.rows("SELECT host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted ORDER BY step", [device])
    events = recording.frame(
        "SELECT time_ns, total_allocated_bytes AS total FROM allocations WHERE device_type <> 0 AND device = ? ORDER BY time_ns",
        [device],
    )
    if events.empty or not spans:
        return None
    at, total = events["time_ns"].to_numpy(np.int64), events["total"].to_numpy(float)
    grown_at, grown = _gradients(recording)
    tuned = recording.rows(
        "SELECT start_ns, start_ns + dur_ns FROM cpu_ops JOIN names USING (name_id) WHERE starts_with(name, 'Optimizer.step#')"
    )
    casts = _casts(recording, device, len(spans))
    zeroed = recording.rows(ZEROED)
    peaks = []
    for begin, end in spans:
        inside = (at >= begin) & (at < end)
        if not inside.any():
            continue
        moment, held = at[inside], total[inside]
        since, until = np.searchsorted(grown_at, [begin, end])
        before = np.concatenate([[0.0], np.cumsum(grown[since:until])])
        done = np.searchsorted(grown_at[since:until], moment, side="right")
        # in the backward pass the gradients of the layer at hand are there before they are accumulated
        gradients = before[np.where(done > 0, np.minimum(done + IN_FLIGHT, len(before) - 1), 0)]
        rest = held.min()
        zeroings = [edge for start, edge in zeroed if begin <= start < end]
        if len(zeroings) == 1:  # the last step's gradients live on until then
            old = moment < zeroings[0]
            rest = max(float((held - np.where(old, before[-1], before[done])).min()), 0.0)
            gradients = np.where(old, before[-1], gradients)
            freed = np.ones(len(moment), bool)
        else:
            freed = moment >= moment[np.argmax(held <= rest * (1 + NEAR_LEAST))]
        in_optimizer = (
            np.any([(moment >= a) & (moment < b) for a, b in tuned], axis=0) if tuned else np.zeros(len(moment), bool)
        )
        stays = np.minimum(rest + gradients + casts, held)
        fixed = in_optimizer | ~freed
        peaks.append([float(np.where(fixed, held, stays + (held - stays) * times).max()) for times in factors])
    return [float(peak) for peak in np.median(peaks, axis=0)] if peaks else None


def _gradients(recording: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Return when each gradient was accumulated, ns, and its bytes."""
    rows = recording.rows(
        "SELECT o.start_ns, s.input_dims, s.input_types FROM cpu_ops o JOIN names USING (name_id) JOIN signatures s USING (signature_id) "
        "WHERE name = ? ORDER BY 1",
        [GRADIENTS],
    )
    return np.array([row[0] for row in rows], np.int64), np.array([_bytes(dims, types) for _, dims, types in rows], float)


@lru_cache(maxsize=2000)
def _bytes(dims: str | None, types: str | None) -> float:
    shapes, kinds = json.loads(dims or "[]"), json.loads(types or "[]")
    return float(
        sum(
            numel(shape) * ITEM_BYTES[dtype]
            for shape, kind in zip(shapes, kinds, strict=False)
            if (dtype := dtype_of_type(kind))
        )
    )


def _casts(recording: Recording, device: int, steps: int) -> float:
    """Return the bytes a step of 16-bit copies of parameters, which autocast keeps."""
    own = parameters_of(recording, device)
    rows = recording.rows(
        f"SELECT s.input_dims, s.concrete_inputs, count(*) {_IN_STEPS} WHERE n.name = 'aten::_to_copy' GROUP BY 1, 2",
        [device],
    )
    kept = 0.0
    for dims, concrete, count in rows:
        shapes = json.loads(dims) if dims else []
        wanted = (json.loads(concrete) if concrete else [None, None])[1:2]
        if (
            shapes
            and isinstance(shapes[0], list)
            and tuple(shapes[0]) in own
            and wanted
            and str(wanted[0]) in SIXTEEN_BIT_CODES
        ):
            kept += numel(shapes[0]) * 2 * count / steps
    return kept
