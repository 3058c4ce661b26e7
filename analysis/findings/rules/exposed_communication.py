"""Communication runs while no kernel computes.

What it checks
    Time in which only collectives run (owner ``exposed_comm``). Waiting for late ranks is left out if the traces of the other
    ranks show it; else it is included.
Why it costs time
    DDP and FSDP send gradients and weights during the backward pass. Communication that does not overlap makes the step
    longer.
What to do
    Overlap it: larger or smaller buckets, gradient_as_bucket_view, FSDP prefetch, compression to bf16, accumulation with
    no_sync.
When it is wrong
    The run waits for a late rank. The traces of all ranks show this waiting separately, and the late rank is then the problem
    to solve.
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
    """Yield a finding if communication alone takes a relevant share of the lead rank's step."""
    rows = [row for row in context.rank.ledger if row.owner == "exposed_comm"]
    # The rule straggling-rank reports waiting for a late rank. Without other ranks, the time may be either.
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
