"""The shapes of the parameters that a recorded training updates."""

from __future__ import annotations

import json
from collections import Counter

from sawtooth.analysis.findings.recorded.counted_operations import numel
from sawtooth.analysis.store.library import Recording

Shape = tuple[int, ...]

GRADIENTS = "torch::autograd::AccumulateGrad"
SENT_SIZES = "SELECT DISTINCT in_elements FROM collectives WHERE name IN ('send', 'recv') AND in_elements IS NOT NULL"
_IN_STEPS = (
    "FROM cpu_ops o JOIN names n USING (name_id) JOIN signatures s USING (signature_id) JOIN steps t ON t.device = ? AND t.counted "
    "AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns"
)


def parameters_of(recording: Recording, device: int) -> Counter[Shape]:
    """Return the shapes of the parameters that got a gradient in a step, with the number of each.

    The shapes come from autograd's gradient accumulation. A pipeline stage also accumulates the gradients of received inputs, which
    the stage sends back. So tensors with the element count of a sent or received tensor do not count.
    """
    sent_sizes = {size for (size,) in recording.rows(SENT_SIZES)}
    rows = recording.rows(
        f"SELECT s.input_dims, count(*) / count(DISTINCT t.step) {_IN_STEPS} WHERE n.name = ? GROUP BY 1",
        [device, GRADIENTS],
    )
    shapes: Counter[Shape] = Counter()
    for dims, count in rows:
        for shape in json.loads(dims) if dims else []:
            if isinstance(shape, list) and numel(shape) and numel(shape) not in sent_sizes:
                shapes[tuple(shape)] += max(round(float(count)), 1)
    return shapes
