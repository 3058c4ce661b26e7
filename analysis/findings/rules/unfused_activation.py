"""An activation consists of several small operators.

What it checks
    Chains of elementwise kernels over one tensor that contain ``erf`` or ``softplus``, or ``tanh``, ``sigmoid`` or ``exp``
    with a number (0.5, 1, 1.702). These are a GELU, quick GELU or Mish written by hand. Gates and scans of recurrent layers
    contain only tensors.
Why it costs time
    Each operator reads and writes the whole activation, usually the largest tensor of a layer.
What to do
    Use ``F.gelu``, ``F.silu``, or ``torch.compile`` for the module.
When it is wrong
    A sigmoid is a gate next to other elementwise work with numbers, not an activation: compile it instead.
References
    https://docs.pytorch.org/docs/stable/nn.functional.html#non-linear-activation-functions
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.chains import KernelChain, marked
from sawtooth.analysis.run.model import Action, CodeChange, Explains

MARKS = frozenset(("aten::tanh", "aten::erf", "aten::sigmoid", "aten::exp", "aten::softplus"))
LONG = 3  # A hand-written activation has at least three operators.
TAKES_NUMBER = tuple(f"aten::{name}" for name in ("add", "sub", "rsub", "mul", "div", "pow"))
OF_ACTIVATIONS = frozenset(("aten::erf", "aten::softplus"))

CHANGES = (
    CodeChange(
        "PyTorch",
        "0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x ** 3)))",
        'F.gelu(x, approximate="tanh")   # or F.silu, F.softplus, …; if none fits: torch.compile(module)',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if chains with an activation take a relevant share of the step."""
    rows, edits = marked(context, MARKS, shortest=LONG, only=_is_activation)
    yield from kernel_evidence(
        context,
        rows,
        Advice(
            "Activations written as several small operators take {cost} of each step, in {kernels}",
            Action("Call", "the activation's own function", ", or compile the module."),
            note="Predicted with one kernel forward and one backward. Each takes as long as the slowest kernel that it replaces.",
            risk="Results differ in the last bits.",
            changes=CHANGES,
        ),
        edits=edits,
    )


def _is_activation(work: pd.DataFrame, chain: KernelChain) -> bool:
    """Return whether a chain contains an operator that only activations use, or a number.

    Without either, it may be a gate or a time step of a scan.
    """
    rows = work.iloc[chain.rows]
    operands = rows["dims"][rows["operator"].str.removesuffix("_").isin(TAKES_NUMBER)]
    return bool(chain.operators & OF_ACTIVATIONS) or any(dims is not None and dims[1:2] == [[]] for dims in operands)


RULE = Rule(
    "unfused-activation",
    measure,
    reads=OF_TRACE | {"shapes"},
    explains=Explains(sets=("compile",)),
    requires=("steps", "shapes"),
    threshold=FEW_LINES,
)
