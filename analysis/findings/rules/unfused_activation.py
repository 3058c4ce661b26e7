"""An activation is written out of small operators.

What it checks
    Chains of elementwise kernels over one tensor that hold ``tanh``, ``erf``, ``sigmoid`` or ``exp``: a GELU, SiLU or Mish by hand.
Why it costs time
    Each operator of it reads and writes the whole activation, usually the largest of a layer.
What to do
    ``F.gelu``, ``F.silu``, or ``torch.compile`` around the module.
When it is wrong
    A sigmoid that is a gate of its own, beside other elementwise work, is no activation: compile it instead.
References
    https://docs.pytorch.org/docs/stable/nn.functional.html#non-linear-activation-functions
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.builders import of_kernels
from sawtooth.analysis.findings.queries.chains import marked
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.02  # one call to change: worth it from 2 % of the step
MARKS = frozenset(("aten::tanh", "aten::erf", "aten::sigmoid", "aten::exp", "aten::softplus"))
LONG = 3  # an activation by hand is at least three operators

CHANGES = (
    CodeChange(
        "PyTorch",
        "0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x ** 3)))",
        'F.gelu(x, approximate="tanh")   # F.silu, F.softplus, …: the one that it is; without one torch.compile(module)',
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when chains that hold an activation take more than WORTH_NAMING of the step."""
    rows, edits = marked(context, MARKS, shortest=LONG)
    yield from of_kernels(
        context,
        RULE.slug,
        rows,
        "Activations written out of small operators take {cost} of each step in {kernels}",
        "Call the activation's own function, or compile the module.",
        worth_naming=WORTH_NAMING,
        edits=edits,
        confidence="medium",
        note="Forward and backward as one kernel each, as long as the slowest of those they replace.",
        risk="Results differ in the last bits.",
        changes=CHANGES,
    )


RULE = Rule("unfused-activation", ("steps", "shapes"), check, Explains(sets=("compile",)))
