"""The optimizer is foreach where it could be fused.

What it checks
    ``_foreach_`` kernels inside ``Optimizer.step`` and no ``_fused_`` ones.
Why it costs time
    A foreach optimizer launches few kernels but still moves every state several times through memory.
What to do
    ``fused=True``: one pass.
When it is wrong
    Optimizers without a fused form (all but Adam, AdamW, SGD, Adagrad).
References
    https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.findings import Rule, RuleInput, in_words
from analysis.run_result import CodeChange, Finding
from analysis.step_work import evidence_of, launched_inside, ms_per_step
from analysis.whatif import ScaledOps

WORTH_NAMING = 0.01  # one argument to change: worth it from 1 % of the step
FUSED_SHARE = 0.5  # fused Adam moves seven values per parameter, foreach Adam about fifteen

CHANGES = (
    CodeChange(
        "PyTorch",
        "torch.optim.AdamW(model.parameters(), lr=3e-4)",
        "torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)",
    ),
    CodeChange("Transformers", "TrainingArguments(...)", 'TrainingArguments(..., optim="adamw_torch_fused")'),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when foreach kernels of the optimizer take more than WORTH_NAMING of the step."""
    steps = given.work_steps
    inside = launched_inside(given.recording, given.rank.device, r"^Optimizer\.step#")
    work = given.work
    mine = work[work["gpu_op_id"].isin(inside)]
    operators = mine["operator"].fillna("")
    foreach = mine[operators.str.contains("_foreach_")]
    cost = ms_per_step(foreach, steps)
    if operators.str.contains("_fused_").any() or given.share(cost) < WORTH_NAMING:
        return
    yield given.finding(
        RULE.slug,
        f"The optimizer moves its states several times through memory: {in_words(cost)} of each step in foreach kernels",
        "Use the fused optimizer: one pass over parameters, gradients and states.",
        ceiling_ms=cost,
        edits=[ScaledOps(tuple(foreach["gpu_op_id"].tolist()), FUSED_SHARE)],
        severity="info",
        note="Half of the memory traffic.",
        risk="The fused update rounds differently in the last bits.",
        changes=CHANGES,
        evidence=evidence_of(foreach, steps, ("operator",)),
    )


RULE = Rule("optimizer-foreach", ("steps",), check)
