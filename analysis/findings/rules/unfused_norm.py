"""A normalization consists of several small operators.

What it checks
    Chains of elementwise kernels and reductions over one tensor that contain a variance, a reciprocal square root, or a mean and
    a square root: a layer norm or RMS norm written by hand.
Why it costs time
    Each operator reads and writes the whole activation. The fused kernel reads it once.
What to do
    Use ``F.layer_norm``, ``F.rms_norm``, or ``torch.compile`` for the module.
When it is wrong
    No fused operator computes this norm. Then compile the module.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.rms_norm.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.queries.chains import KernelChain, fused_chains_with
from sawtooth.analysis.run.model import Action, CodeChange, Explains

ROOT, MEAN = "aten::sqrt", "aten::mean"
# A normalization has one of these operators.
NORM_OPERATORS = frozenset(("aten::rsqrt", "aten::var", "aten::var_mean", "aten::std", ROOT))

CHANGES = (
    CodeChange(
        "PyTorch",
        "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight",
        "F.rms_norm(x, (x.size(-1),), weight, eps)",
    ),
    CodeChange(
        "PyTorch",
        "(x - mean) / ((x - mean).pow(2).mean(-1, keepdim=True) + eps).sqrt()",
        "F.layer_norm(x, (x.size(-1),), eps=eps)",
    ),
    CodeChange(
        "PyTorch",
        "(x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)",
        "F.layer_norm(x, (x.size(-1),))   # divides by n, x.std by n - 1: results differ a little",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if chains with a normalization take a relevant share of the step."""
    rows, edits = fused_chains_with(context, NORM_OPERATORS, begins=True, only=_is_norm)
    yield from kernel_evidence(
        context,
        rows,
        Advice(
            "Normalization written as several small operators takes {cost} of each step, in {kernels}",
            Action("Call", "the fused norm", ", or compile the module."),
            note="Predicted with one kernel forward and two backward. Each takes as long as the slowest kernel that it replaces.",
            risk="Fused norms accumulate in FP32, so results differ in the last bits.",
            changes=CHANGES,
        ),
        edits=edits,
    )


def _is_norm(_: pd.DataFrame, chain: KernelChain) -> bool:
    """Return whether the chain is a norm. An optimizer's update also has square roots, but no means."""
    return chain.operators & NORM_OPERATORS != {ROOT} or MEAN in chain.operators


RULE = Rule(
    "unfused-norm",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(sets=("compile",)),
    requires=("steps", "shapes"),
    threshold=CALL_TO_CHECK,
)
