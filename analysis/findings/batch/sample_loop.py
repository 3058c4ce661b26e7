"""A loop that calls the model's layers once per sample, instead of once per batch."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.queries.calls import RECURRENT_CELLS
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE
from sawtooth.analysis.findings.recorded.parameters import Shape, parameters_of

if TYPE_CHECKING:
    from sawtooth.analysis.findings.context import RuleContext

MIN_SAMPLES = 6  # Fewer calls may belong to one sample, such as two crops or the three inputs of a triplet loss.
MIN_SINGLE_SHARE = 0.9  # Share of the calls with a batch of one.
# Smallest share of the consecutive calls whose input is larger, and whose input is smaller. Random sizes have about one half each.
MIN_TURNS_SHARE = 0.25
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
    """Layer calls (columns cpu_op_id and step) of a loop over ``samples`` samples in each step.

    ``vectors`` is True if every input has at most two dimensions. ``sizes_vary`` is True if the input's size rises and falls
    from call to call. Then a call's input is not the result of the previous call: a state keeps its size, and a growing
    sequence only gets longer.
    """

    calls: pd.DataFrame
    samples: int
    vectors: bool
    sizes_vary: bool


def sample_loop(context: RuleContext) -> SampleLoop | None:
    """Return the loop that calls the most layers.

    None if no loop calls layers at least MIN_SAMPLES times with a batch of one, or if the layers are recurrent cells. Call this
    function through ``RuleContext.once``, because several rules use the result.
    """
    if context.recording.named(RECURRENT_CELLS):
        return None
    parameters = parameters_of(context.recording, context.rank.device)
    if not parameters:
        return None
    rows = context.recording.frame(_LAYERS, [context.rank.device])
    rows = rows.assign(shapes=[_shapes(dims) for dims in rows["input_dims"]])
    is_parameter = [shapes is not None and shapes[1] in parameters for shapes in rows["shapes"]]
    # If there are no rows, as under torch.compile, a plain list would select columns.
    rows = rows[np.array(is_parameter, dtype=bool)]
    steps = max(rows["step"].nunique(), 1)
    rows = rows.assign(weight=[shapes[1] for shapes in rows["shapes"]])
    uses = {weight: len(calls) / steps / parameters[weight] for weight, calls in rows.groupby("weight", sort=False)}
    rows = rows.assign(uses_per_step=rows["weight"].map(uses).astype(float))
    frequent_rows = rows[rows["uses_per_step"] >= MIN_SAMPLES]
    if frequent_rows.empty:
        return None
    samples = round(float(frequent_rows["uses_per_step"].median()))
    calls = frequent_rows[(frequent_rows["uses_per_step"] / samples).round(2).between(0.9, 1.1)]
    is_single = [_is_single_sample(*shapes) for shapes in calls["shapes"]]
    if not is_single or np.mean(is_single) < MIN_SINGLE_SHARE:
        return None
    vectors = all(len(input_shape) <= 2 for input_shape, _ in calls["shapes"])
    of_one_weight = calls[calls["weight"].map(parameters) == 1]
    return SampleLoop(calls[["cpu_op_id", "step"]], samples, vectors, _sizes_vary(of_one_weight))


def _sizes_vary(calls: pd.DataFrame) -> bool:
    """Return whether the input size of some weight rises and falls between the calls of a step.

    ``calls`` are in the order of time. Each shape of a weight belongs to one weight.
    """
    sizes = [math.prod(input_shape) for input_shape, _ in calls["shapes"]]
    changes = calls.assign(change=pd.Series(sizes, calls.index, dtype=float)).groupby(["weight", "step"])["change"].diff()
    by_weight = np.sign(changes.dropna()).groupby(calls["weight"])
    return any(min(part.eq(1).mean(), part.eq(-1).mean()) >= MIN_TURNS_SHARE for _, part in by_weight)


def _shapes(dims: Any) -> tuple[Shape, Shape] | None:
    """Return the shapes of a layer's input and weight, None if they are not recorded."""
    shapes = json.loads(dims) if isinstance(dims, str) else []
    if len(shapes) < 2 or not all(isinstance(shape, list) and shape for shape in shapes[:2]):
        return None
    return tuple(shapes[0]), tuple(shapes[1])


def _is_single_sample(input_shape: Shape, weight_shape: Shape) -> bool:
    """Return whether a layer's input is a batch of one, or has no batch dimension."""
    has_no_batch = len(input_shape) == 1 or (len(weight_shape) > 2 and len(input_shape) == len(weight_shape) - 1)
    return input_shape[0] == 1 or has_no_batch
