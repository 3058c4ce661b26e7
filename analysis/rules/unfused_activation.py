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

from analysis.findings import CodeChange, Finding, Rule, RuleInput, in_words
from analysis.fusion import marked
from analysis.step_work import evidence_of, ms_per_step

WORTH_NAMING = 0.02  # one call to change: worth it from 2 % of the step
MARKS = frozenset(("aten::tanh", "aten::erf", "aten::sigmoid", "aten::exp", "aten::softplus"))
LONG = 3  # an activation by hand is at least three operators

CHANGES = (
    CodeChange("PyTorch", "0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x ** 3)))", 'F.gelu(x, approximate="tanh")'),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when chains that hold an activation take more than WORTH_NAMING of the step."""
    steps = given.work_steps
    rows, edits = marked(given, MARKS, LONG)
    cost = ms_per_step(rows, steps)
    if given.share(cost) < WORTH_NAMING:
        return
    yield given.finding(
        RULE.slug,
        f"Activations written out of small operators take {in_words(cost)} of each step in {len(rows) / steps:,.0f} kernels",
        "Call the activation's own function, or compile the module.",
        ceiling_ms=cost,
        edits=edits,
        confidence="medium",
        note="Each chain as one kernel as long as its slowest.",
        risk="Results differ in the last bits.",
        changes=CHANGES,
        evidence=evidence_of(rows, steps, ("operator",)),
    )


RULE = Rule("unfused-activation", ("steps", "shapes"), check)
