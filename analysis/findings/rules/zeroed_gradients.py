"""Gradients are filled with zeros instead of dropped.

What it checks
    Kernels and memory sets launched inside ``Optimizer.zero_grad``, or inside ``Module.zero_grad`` where Python calls are recorded.
Why it costs time
    Writing zeros to every gradient and adding to them later moves each gradient twice more than dropping it.
What to do
    ``zero_grad(set_to_none=True)``, the default since PyTorch 2.0.
When it is wrong
    Code that reads ``.grad`` of unused parameters must accept None.
References
    https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.builders import of_kernels
from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.findings.within import launches_within
from sawtooth.analysis.findings.work import launched_inside
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.005  # one argument to delete: worth it from half a percent of the step

_ZERO_GRAD = (
    "(SELECT thread_id, start_ns, start_ns + dur_ns AS end_ns FROM named_python_calls "
    "WHERE name LIKE '%torch/nn/modules/module.py(%: zero_grad')"
)
_BY_PYTHON = f"SELECT gpu_op_id FROM gpu_ops JOIN ({launches_within(_ZERO_GRAD)}) USING (call_id)"

CHANGES = (
    CodeChange(
        "PyTorch", "optimizer.zero_grad(set_to_none=False)", "optimizer.zero_grad()   # set_to_none=True is the default"
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when zeroing gradients takes more than WORTH_NAMING of the step."""
    inside = launched_inside(context.recording, context.rank.device, r"^Optimizer\.zero_grad#")
    if context.recording.named(r"torch/nn/modules/module\.py\(.*: zero_grad$"):
        inside = np.concatenate([inside, context.recording.objects(_BY_PYTHON)["gpu_op_id"].to_numpy(np.int64)])
    if not len(inside):
        return
    yield from of_kernels(
        context,
        RULE.slug,
        context.work[context.work["gpu_op_id"].isin(inside)],
        "Gradients are filled with zeros in {kernels}, {cost} of each step",
        "Drop gradients instead of zeroing them: zero_grad(set_to_none=True).",
        worth_naming=WORTH_NAMING,
        by=("operator", "kernel"),
        severity="info",
        confidence="high",
        note="Without the fills; the first accumulation into a gradient then becomes a plain write as well.",
        risk="Gradients of unused parameters are None afterwards.",
        changes=CHANGES,
    )


RULE = Rule("zeroed-gradients", ("steps",), check, Explains(), reads=OF_TRACE)
