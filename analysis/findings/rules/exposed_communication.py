"""Communication runs while nothing computes.

What it checks
    Time in which only collectives run (owner ``exposed_comm``), waiting for late ranks included.
Why it costs time
    DDP and FSDP send gradients and weights while the backward pass computes; what is left over adds to the step.
What to do
    Overlap: larger or smaller buckets, gradient_as_bucket_view, FSDP prefetch, compression to bf16, accumulation with no_sync.
When it is wrong
    With the traces of all ranks the waiting for a late rank is told apart, and that is then the thing to fix.
References
    https://docs.pytorch.org/docs/stable/notes/ddp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "model = DDP(model)",
        "model = DDP(model, gradient_as_bucket_view=True, bucket_cap_mb=100)\nmodel.register_comm_hook(None, bf16_compress_hook)",
    ),
    CodeChange(
        "Lightning", 'Trainer(strategy="ddp")', "Trainer(strategy=DDPStrategy(gradient_as_bucket_view=True, bucket_cap_mb=100))"
    ),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., ddp_bucket_cap_mb=100)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding when the lead rank computes nothing during a part that is worth naming of the step because of communication."""
    rows = [row for row in context.rank.ledger if row.owner == "exposed_comm"]
    # Waiting for a late rank is straggling-rank's; what no other rank tells may be either.
    transfer = sum(row.ms_per_step or 0.0 for row in rows if row.cause != "comm_wait")
    if context.is_trifle(transfer):
        return
    alone = all(row.cause not in ("comm_wait", "comm_transfer") for row in rows)
    yield Evidence(
        Advice(
            f"The GPU only communicates for {in_words(transfer)} of each step"
            + (": transfer, or waiting for a late rank" if alone else ""),
            Action(
                "Overlap",
                "communication with the backward pass",
                " (buckets, prefetch), send fewer bytes (bf16), or communicate less often (accumulation with no_sync)."
                + (" Add the traces of the other ranks to tell waiting from transfer." if alone else ""),
            ),
            note="Not predicted: how much can be overlapped depends on the order of the gradients.",
            risk="Compressed gradients lose precision; larger buckets start later.",
            changes=CHANGES,
        ),
        lost_ms=transfer,
        cost_ms=transfer,
        confidence="low" if alone else "medium",
        rows=context.gap_evidence("comm_wait", "comm_transfer", "unattributed"),
    )


RULE = Rule(
    "exposed-communication",
    measure,
    reads=OF_TRACE,
    requires=("steps",),
    bar=OTHER_CODE,
)
