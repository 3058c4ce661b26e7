"""Many small collectives.

What it checks
    Mean size of the collectives of a step where communication is exposed.
Why it costs time
    A collective costs tens of microseconds whatever its size; below about 1 MB that is most of its time.
What to do
    Larger buckets (bucket_cap_mb), flattened parameters, one all-reduce for all metrics.
When it is wrong
    Tensor parallelism needs its small collectives.
References
    https://docs.pytorch.org/docs/stable/notes/ddp.html#internal-design
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.replay.edits import TimedOps
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_number, in_words

SMALL_BYTES = 1_000_000  # below about 1 MB latency, not bandwidth, decides on NVLink and on the network alike
MANY = 20  # a step; a few small ones are metrics and flags
WORTH_NAMING = 0.02  # of the step
ELEMENT_BYTES = {"Float": 4, "BFloat16": 2, "Half": 2, "Double": 8, "Long": 8, "Int": 4, "Byte": 1}

CHANGES = (
    CodeChange("PyTorch", "DDP(model, bucket_cap_mb=1)", "DDP(model, bucket_cap_mb=25)"),
    CodeChange("Transformers", "TrainingArguments(ddp_bucket_cap_mb=1)", "TrainingArguments(ddp_bucket_cap_mb=25)"),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when many collectives are small and communication is exposed."""
    lost = sum(row.ms_per_step or 0.0 for row in context.rank.ledger if row.owner == "exposed_comm")
    if context.share(lost) < WORTH_NAMING:
        return
    rows = context.recording.rows(
        "SELECT c.dtype, c.in_elements, g.start_ns, g.start_ns + g.dur_ns, g.gpu_op_id FROM collectives c JOIN gpu_ops g USING (gpu_op_id) "
        "JOIN gpu_op_steps s USING (gpu_op_id) JOIN steps t ON t.device = g.device AND t.step = s.step AND t.counted WHERE g.device = ? AND c.in_elements IS NOT NULL",
        [context.rank.device],
    )
    small = [r for r in rows if _bytes(r) < SMALL_BYTES]
    count = len(small) / max(len(context.rank.counted), 1)
    if count < MANY:
        return
    rate = max((_bytes(r) / (r[3] - r[2]) for r in rows if _bytes(r) >= SMALL_BYTES and r[3] > r[2]), default=None)
    edits = [] if rate is None else [TimedOps(tuple(r[4] for r in small), tuple(int(_bytes(r) / rate) for r in small))]
    yield context.finding(
        RULE.slug,
        f"{in_number(count, 'collective a step moves', 'collectives a step move')} less than 1 MB each, while {in_words(lost)} of communication is exposed",
        "Put gradients together: a larger bucket_cap_mb, or one flat tensor for small values.",
        ceiling_ms=min(lost, sum(r[3] - r[2] for r in small) / 1e6 / max(len(context.rank.counted), 1)),
        confidence="medium",
        edits=edits,
        note="Predicted by the replay with these bytes moved at the rate of the largest collectives."
        if edits
        else "Not predicted: the time of a larger collective is not in the trace.",
        risk="Larger buckets start later and overlap less.",
        changes=CHANGES,
        evidence=[{"dtype": str(r[0]), "elements": int(r[1]), "start_ns": int(r[2]), "end_ns": int(r[3])} for r in small[:5]],
    )


def _bytes(row: Sequence[Any]) -> float:
    return float(row[1]) * ELEMENT_BYTES.get(str(row[0]), 4)


RULE = Rule("small-collectives", ("steps",), check, Explains(part_of="exposed-communication"))
