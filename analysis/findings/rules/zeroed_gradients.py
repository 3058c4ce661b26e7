"""Gradients are filled with zeros instead of dropped.

What it checks
    Kernels and memsets launched inside ``Optimizer.zero_grad``, or inside ``Module.zero_grad`` if Python calls are recorded.
Why it costs time
    The fill writes zeros to every gradient, and the next backward pass adds to these zeros. If gradients are dropped, the backward
    pass writes each gradient only once.
What to do
    Use ``zero_grad(set_to_none=True)``, the default since PyTorch 2.0.
When it is wrong
    The code reads ``.grad`` of unused parameters. Then change the code so that it accepts None.
References
    https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import LINE_TO_DELETE
from sawtooth.analysis.findings.recorded.counted_operations import launched_inside
from sawtooth.analysis.findings.recorded.interval_sql import launches_within
from sawtooth.analysis.run.model import Action, CodeChange

_ZERO_GRAD_CALLS = (
    "(SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM named_python_calls "
    "WHERE name LIKE '%torch/nn/modules/module.py(%: zero_grad')"
)
_FILLS_IN_PYTHON_CALLS = f"SELECT gpu_op_id FROM gpu_ops JOIN ({launches_within(_ZERO_GRAD_CALLS)}) USING (call_id)"

CHANGES = (
    CodeChange(
        "PyTorch", "optimizer.zero_grad(set_to_none=False)", "optimizer.zero_grad()   # set_to_none=True is the default"
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if zeroing gradients takes a relevant share of the step."""
    fills = launched_inside(context.recording, context.rank.device, r"^Optimizer\.zero_grad#")
    if context.recording.named(r"torch/nn/modules/module\.py\(.*: zero_grad$"):
        fills = np.concatenate([fills, context.recording.objects(_FILLS_IN_PYTHON_CALLS)["gpu_op_id"].to_numpy(np.int64)])
    if not len(fills):
        return
    yield from kernel_evidence(
        context,
        context.work[context.work["gpu_op_id"].isin(fills)],
        Advice(
            "Gradients are filled with zeros in {kernels}, {cost} of each step",
            Action("Drop", "gradients instead of zeroing them", ": zero_grad(set_to_none=True)."),
            note="Predicted without the fills. The backward pass also becomes shorter, which is not included.",
            risk="Gradients of unused parameters are None afterwards.",
            changes=CHANGES,
        ),
        by=("operator", "kernel"),
        severity="info",
        confidence="high",
    )


RULE = Rule(
    "zeroed-gradients",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    threshold=LINE_TO_DELETE,
)
