"""An activation consists of several small operators.

What it checks
    Chains of elementwise kernels over one tensor with ``erf`` or ``softplus``, or with ``tanh``, ``sigmoid`` or ``exp`` and a
    number (0.5, 1, 1.702). Such a chain is a GELU, quick GELU or Mish written by hand. Gates and scans of recurrent layers do not
    count, because they contain no numbers.
Why it costs time
    Each operator reads and writes the whole activation, usually the largest tensor of a layer.
What to do
    Use ``F.gelu``, ``F.silu``, or ``torch.compile`` for the module.
When it is wrong
    The chain is a gate next to other elementwise work with numbers. Then compile the module.
References
    https://docs.pytorch.org/docs/stable/nn.functional.html#non-linear-activation-functions
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.chains import KernelChain, fused_chains_with
from sawtooth.analysis.run.model import Action, CodeChange, Explains

ACTIVATION_OPERATORS = frozenset(("aten::tanh", "aten::erf", "aten::sigmoid", "aten::exp", "aten::softplus"))
MIN_OPERATORS = 3  # A hand-written activation has at least three operators.
ARITHMETIC_OPERATORS = tuple(f"aten::{name}" for name in ("add", "sub", "rsub", "mul", "div", "pow"))
ONLY_IN_ACTIVATIONS = frozenset(("aten::erf", "aten::softplus"))

CHANGES = (
    CodeChange(
        "PyTorch",
        "0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x ** 3)))",
        'F.gelu(x, approximate="tanh")   # or F.silu, F.softplus, …; if none fits: torch.compile(module)',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if chains with an activation take a relevant share of the step."""
    rows, edits = fused_chains_with(context, ACTIVATION_OPERATORS, shortest=MIN_OPERATORS, only=_is_activation)
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

    Other chains may be a gate or a time step of a scan.
    """
    rows = work.iloc[chain.rows]
    arithmetic_dims = rows["dims"][rows["operator"].str.removesuffix("_").isin(ARITHMETIC_OPERATORS)]
    has_number = any(dims is not None and dims[1:2] == [[]] for dims in arithmetic_dims)
    return bool(chain.operators & ONLY_IN_ACTIVATIONS) or has_number


RULE = Rule(
    "unfused-activation",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(sets=("compile",)),
    requires=("steps", "shapes"),
    threshold=FEW_LINES_TO_CHANGE,
)
