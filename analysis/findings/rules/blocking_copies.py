"""Batches in pinned memory are copied, and the host waits for each copy.

What it checks
    Copies to the GPU from pinned memory whose operator waits for them (``.to(device)`` without ``non_blocking=True``), and the idle time that
    begins in these waits (cause ``blocking_copy``).
Why it costs time
    The copy itself needs no host, but the host queues nothing until it has ended, and has lost its head start then.
What to do
    ``.to(device, non_blocking=True)``. Kernels of the same stream still run after the copy.
When it is wrong
    Where the program changes the batch in place at once, it must wait. Many copies too short for the bus are better made one.
References
    https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.queries.calls import lost_in_calls
from sawtooth.analysis.findings.queries.copies import copies, waits_beside
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.replay.edits import WithoutWaits
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_bytes, in_number, in_words

WORTH_NAMING = 0.02  # of the step: as for pageable copies

CHANGES = (
    CodeChange("PyTorch", "x = x.to(device)   # from a loader with pin_memory=True", "x = x.to(device, non_blocking=True)"),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when waiting for copies of pinned memory costs more than WORTH_NAMING of the step."""
    pinned = copies(context, "(?i)pinned *-> *device")
    waits = waits_beside(context, [int(call) for call in pinned.frame["call_id"].dropna()])
    lost = lost_in_calls(context, "blocking_copy", waits)
    if not waits or context.share(lost) < WORTH_NAMING:
        return
    size = float(pinned.frame["bytes"].fillna(0).sum()) / pinned.steps
    yield context.finding(
        RULE.slug,
        f"The host waits for {in_number(pinned.count, 'copy', 'copies')} a step from pinned memory ({in_bytes(size)}): {in_words(lost)} lost",
        "Copy without blocking: .to(device, non_blocking=True).",
        ceiling_ms=lost,
        edits=[WithoutWaits(waits)],
        confidence="high",
        note="The copies as they are, without the host's waiting for them.",
        risk="Change a batch in place only after its copy has ended.",
        changes=CHANGES,
        evidence=pinned.rows(),
        places=pinned.places(),
    )


RULE = Rule("blocking-copies", ("steps",), check, Explains(("blocking_copy",)), reads=OF_TRACE)
