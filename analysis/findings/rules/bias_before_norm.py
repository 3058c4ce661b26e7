"""Convolutions add a bias that the next batch norm removes again.

What it checks
    Convolutions with a bias whose result goes directly into a batch norm: the kernels that add the bias, and those that sum
    its gradient.
Why it costs time
    Batch norm subtracts the mean of each channel and so removes the bias. Adding the bias reads and writes the whole
    activation. Summing the bias's gradient reads the activation's gradient once more.
What to do
    Set ``bias=False`` in these convolutions.
When it is wrong
    The norm is frozen (in evaluation mode). It then subtracts a fixed mean, so the bias has an effect.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.passes import passes
from sawtooth.analysis.run.model import Action, CodeChange

ADDS_BIAS, SUMS_GRADIENT = "aten::add_", "aten::sum"
# The query orders only the operators next to convolutions with a bias, because ordering millions of operators takes a second.
_CONVOLUTIONS = """
WITH biased AS MATERIALIZED (SELECT cpu_op_id, thread_id, coalesce(parent_id, -1) AS parent FROM cpu_ops JOIN signatures USING (signature_id)
    WHERE kind = 'op' AND name_id IN (SELECT name_id FROM names WHERE regexp_matches(name, '^aten::conv[123]d$'))
    AND coalesce(json_extract_string(input_types, '$[2]'), '') <> ''),
beside AS (SELECT cpu_op_id, lead(name_id) OVER (PARTITION BY thread_id, parent_id ORDER BY start_ns, cpu_op_id) AS next_id FROM cpu_ops
    WHERE kind = 'op' AND (thread_id, coalesce(parent_id, -1)) IN (SELECT (thread_id, parent) FROM biased))
SELECT cpu_op_id FROM biased JOIN beside USING (cpu_op_id) WHERE next_id IN (SELECT name_id FROM names WHERE name = 'aten::batch_norm')"""

CHANGES = (
    CodeChange(
        "PyTorch",
        "nn.Sequential(nn.Conv2d(64, 128, 3), nn.BatchNorm2d(128))",
        "nn.Sequential(nn.Conv2d(64, 128, 3, bias=False), nn.BatchNorm2d(128))",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the bias of convolutions before a batch norm takes a relevant share of the step."""
    if not context.recording.named("^aten::batch_norm$"):
        return
    convolutions = passes(context, [int(row[0]) for row in context.recording.rows(_CONVOLUTIONS)])
    forward, backward = convolutions.forward, convolutions.backward
    rows = pd.concat([forward[forward["operator"] == ADDS_BIAS], backward[backward["operator"] == SUMS_GRADIENT]])
    yield from kernel_evidence(
        context,
        rows,
        Advice(
            "Convolutions add a bias that the next batch norm removes again: {cost} of each step",
            Action("Build", "the convolutions before a batch norm with bias=False"),
            note="Predicted without the kernels that add the bias and sum its gradient.",
            risk="Old checkpoints contain the bias. Subtract the bias from the norm's running mean when you load such a checkpoint.",
            changes=CHANGES,
        ),
        confidence="high",
    )


RULE = Rule(
    "bias-before-norm",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    requires=("steps", "shapes"),
    threshold=ONE_LINE_TO_CHANGE,
)
