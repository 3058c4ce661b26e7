"""A loop that calls the model's layers once per sample, instead of once per batch.

The kernels and launches of such a loop do not grow with the batch size.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.queries.calls import CELLS
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE
from sawtooth.analysis.findings.recorded.parameters import Shape, parameters_of

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext

FEWEST = 6  # Samples. Fewer calls can be views of one sample, such as two crops or the three inputs of a triplet loss.
ALONE = 0.9  # Share of the calls that must have a batch of one.
_LAYERS = f"""
SELECT o.cpu_op_id, t.step, s.input_dims
FROM (FROM named_cpu_ops SEMI JOIN (FROM names WHERE regexp_matches(name, '^aten::(linear|conv[123]d|conv_transpose[123]d)$')) USING (name_id)) o
    JOIN signatures s USING (signature_id)
    JOIN steps t ON t.device = ? AND t.counted AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    LEFT JOIN named_cpu_ops p ON p.cpu_op_id = o.parent_id
    WHERE NOT coalesce(starts_with(p.name, '{AUTOGRAD_NODE}') OR p.name = o.name, false) -- autocast calls the operator again inside itself
    ORDER BY o.start_ns, o.cpu_op_id"""


@dataclass(frozen=True)
class SampleLoop:
    """Layer calls (cpu_op_id, step) of a loop over ``samples`` in each step.

    ``vectors`` is True if every input has at most two dimensions.
    """

    calls: pd.DataFrame
    samples: int
    vectors: bool


def sample_loop(context: RuleContext) -> SampleLoop | None:
    """Return the loop in which most layers are called.

    None if no loop calls layers at least FEWEST times with a batch of one, or if the loop is over recurrent cells. Call this through
    ``RuleContext.once``, because several rules use it.
    """
    if context.recording.named(CELLS):
        return None
    parameters = parameters_of(context.recording, context.rank.device)
    if not parameters:
        return None
    rows = context.recording.frame(_LAYERS, [context.rank.device])
    rows = rows.assign(shapes=[_shapes(dims) for dims in rows["input_dims"]])
    is_parameter = [shapes is not None and shapes[1] in parameters for shapes in rows["shapes"]]
    rows = rows[np.array(is_parameter, dtype=bool)]  # Without rows, as under torch.compile, a list would select columns.
    steps = max(rows["step"].nunique(), 1)
    rows = rows.assign(weight=[shapes[1] for shapes in rows["shapes"]])
    used = {weight: len(part) / steps / parameters[weight] for weight, part in rows.groupby("weight", sort=False)}
    frequent_rows = rows[rows["weight"].map(used).astype(float) >= FEWEST]
    if frequent_rows.empty:
        return None
    samples = round(float(np.median(frequent_rows["weight"].map(used).astype(float))))
    calls = frequent_rows[(frequent_rows["weight"].map(used).astype(float) / samples).round(2).between(0.9, 1.1)]
    inputs = [shapes[0] for shapes in calls["shapes"]]
    alone = [_is_alone(*shapes) for shapes in calls["shapes"]]
    if not alone or np.mean(alone) < ALONE:
        return None
    return SampleLoop(calls[["cpu_op_id", "step"]], samples, all(len(shape) <= 2 for shape in inputs))


def _shapes(dims: Any) -> tuple[Shape, Shape] | None:
    """Return the shapes of a layer's input and weight, None if they are not recorded."""
    shapes = json.loads(dims) if isinstance(dims, str) else []
    if len(shapes) < 2 or not all(isinstance(shape, list) and shape for shape in shapes[:2]):
        return None
    return tuple(shapes[0]), tuple(shapes[1])


def _is_alone(of_input: Shape, of_weight: Shape) -> bool:
    """Return whether a layer's input is one sample: a batch of one, or an input without a batch dimension."""
    return of_input[0] == 1 or len(of_input) == 1 or (len(of_weight) > 2 and len(of_input) == len(of_weight) - 1)
