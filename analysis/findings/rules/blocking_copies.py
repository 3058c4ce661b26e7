"""The host waits for each copy of a batch from pinned memory.

What it checks
    Copies from pinned memory to the GPU for which the host waits (``.to(device)`` without ``non_blocking=True``), and the idle
    time that begins in these waits (cause ``blocking_copy``).
Why it costs time
    The copy does not need the host, but the host launches nothing until the copy has ended. So the host no longer runs ahead of
    the GPU.
What to do
    Use ``.to(device, non_blocking=True)``. Kernels of the same stream still run after the copy.
When it is wrong
    The program changes the batch in place directly after the copy, so it must wait. If there are many very short copies,
    combine them into one.
References
    https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import lost_in_calls_ms
from sawtooth.analysis.findings.queries.copies import copies, waits_for_copies
from sawtooth.analysis.replay.edits import WithoutWaits
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_number, in_words

CHANGES = (
    CodeChange("PyTorch", "x = x.to(device)   # from a loader with pin_memory=True", "x = x.to(device, non_blocking=True)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if waiting for copies from pinned memory costs a relevant share of the step."""
    pinned = copies(context, "(?i)pinned *-> *device")
    waits = waits_for_copies(context, [int(call) for call in pinned.frame["call_id"].dropna()])
    lost_ms = lost_in_calls_ms(context, "blocking_copy", waits)
    if not waits or context.is_negligible(lost_ms):
        return
    size = float(pinned.frame["bytes"].fillna(0).sum()) / pinned.steps
    yield Evidence(
        Advice(
            f"The host waits for {in_number(pinned.count_per_step, 'copy', 'copies')} per step from pinned memory ({in_bytes(size)}): {in_words(lost_ms)} lost",
            Action("Copy", "without blocking", ": .to(device, non_blocking=True)."),
            note="Predicted with the same copies, without the host's waits for them.",
            risk="Do not change a batch in place before its copy has ended.",
            changes=CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=[WithoutWaits(waits)],
        confidence="high",
        rows=pinned.rows(),
        spans=pinned.spans(),
    )


RULE = Rule(
    "blocking-copies",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("blocking_copy",)),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)
