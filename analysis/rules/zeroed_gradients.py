"""Gradients are filled with zeros instead of dropped.

What it checks
    Kernels and memory sets launched inside ``Optimizer.zero_grad``.
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

from analysis.findings import CodeChange, Finding, Rule, RuleInput, in_words
from analysis.step_work import evidence_of, launched_inside, ms_per_step
from analysis.whatif import WithoutOps

WORTH_NAMING = 0.005  # one argument to delete: worth it from half a percent of the step

CHANGES = (
    CodeChange(
        "PyTorch", "optimizer.zero_grad(set_to_none=False)", "optimizer.zero_grad()   # set_to_none=True is the default"
    ),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when zeroing gradients takes more than WORTH_NAMING of the step."""
    steps = given.work_steps
    inside = launched_inside(given.recording, given.rank.device, r"^Optimizer\.zero_grad#")
    if not inside:
        return
    work = given.work
    fills = work[work["gpu_op_id"].isin(inside)]
    cost = ms_per_step(fills, steps)
    if given.share(cost) < WORTH_NAMING:
        return
    yield given.finding(
        RULE.slug,
        f"Gradients are filled with zeros in {len(fills) / steps:,.0f} kernels, {in_words(cost)} of each step",
        "Drop gradients instead: zero_grad(set_to_none=True).",
        ceiling_ms=cost,
        edits=[WithoutOps(tuple(fills["gpu_op_id"].tolist()))],
        severity="info",
        confidence="high",
        note="Without the fills; the first accumulation into a gradient then becomes a plain write as well.",
        risk="Gradients of unused parameters are None afterwards.",
        changes=CHANGES,
        evidence=evidence_of(fills, steps, ("operator", "kernel")),
    )


RULE = Rule("zeroed-gradients", ("steps",), check)
