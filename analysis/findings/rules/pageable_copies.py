"""Batches are copied from pageable memory.

What it checks
    Copies from pageable memory to the GPU, and synchronous ones, that block the host (cause ``blocking_copy``).
Why it costs time
    The driver copies pageable memory through its own buffer, at a fraction of the bus speed. The call returns only after the
    copy, so the host launches nothing meanwhile.
What to do
    Use ``pin_memory=True`` in the loader and ``non_blocking=True`` in the copy. You need both: with only one of them, the
    copy still blocks the host.
When it is wrong
    The step itself makes the tensors. They have their own rule: making them on the GPU is the better change.
References
    https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import THREAD_BYTES_PER_NS
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.calls import lost_in_calls
from sawtooth.analysis.findings.queries.copies import (
    PAGEABLE_TO_DEVICE,
    PINNED_BYTES_PER_NS,
    copies,
    copies_of_made_tensors,
    of_the_batch,
)
from sawtooth.analysis.findings.queries.loading import loads_in_workers
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_words

PINNED = "Predicted with the speed of pinned copies over PCIe 5 (55 GB/s), without the host's waits for them."
THREAD = "Not predicted: one thread pins the batches of all workers. It would need about {ms} per step, so the loop would wait for it."
SMALLER = Action(
    "Send",
    "fewer bytes",
    " (uint8 instead of float32, smaller inputs) and convert them on the GPU; then pin the loader's memory: pin_memory=True and .to(device, non_blocking=True).",
)

CHANGES = (
    CodeChange(
        "PyTorch",
        "loader = DataLoader(dataset, …)\nx = x.to(device)",
        "loader = DataLoader(dataset, …, pin_memory=True)\nx = x.to(device, non_blocking=True)",
    ),
    CodeChange(
        "Lightning",
        "DataLoader(dataset, …)",
        "DataLoader(dataset, …, pin_memory=True)   # Lightning copies with non_blocking=True",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(dataloader_pin_memory=False)",
        "TrainingArguments(dataloader_pin_memory=True)   # the default",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if pageable copies of the input cost a relevant share of the step."""
    made_on_cpu = set(copies_of_made_tensors(context).frame["call_id"])
    pageable = copies(context, PAGEABLE_TO_DEVICE)
    pageable = pageable.where(~pageable.frame["call_id"].isin(made_on_cpu))
    calls = tuple(int(c) for c in pageable.frame["call_id"].dropna())
    lost = lost_in_calls(context, "blocking_copy", calls)
    if not calls or context.is_trifle(lost):
        return
    size = pageable.frame["bytes"].fillna(0)
    span = pageable.frame["end_ns"] - pageable.frame["start_ns"]
    pinned = [min(int(b / PINNED_BYTES_PER_NS), int(ns)) if b else int(ns) for b, ns in zip(size, span, strict=True)]
    edits: list[Edit] = [
        WithoutWaits(calls),
        WithoutHostCause("blocking_copy", calls=calls),
        TimedOps(pageable.ids, tuple(pinned)),
    ]
    moved = f"{in_bytes(float(size.sum()) / pageable.steps)} per step{of_the_batch(context, pageable)}"
    title = f"{moved} are copied from pageable memory while the host waits: {in_words(lost)} lost"
    thread_ms = float(size.sum()) / pageable.steps / THREAD_BYTES_PER_NS / 1e6 if loads_in_workers(context) else 0.0
    predicted = context.predict_ms(edits)
    slow_thread = predicted is not None and thread_ms > predicted
    yield Evidence(
        Advice(
            title,
            SMALLER
            if slow_thread
            else Action(
                "Pin", "the loader's memory and copy without blocking", ": pin_memory=True and .to(device, non_blocking=True)."
            ),
            note=THREAD.format(ms=in_words(thread_ms)) if slow_thread else PINNED,
            risk="Pinned memory cannot be swapped. Change a batch in place only after its copy has ended.",
            changes=CHANGES,
        ),
        lost_ms=lost,
        cost_ms=lost,
        edits=[] if slow_thread else edits,
        confidence="medium" if slow_thread else "high",
        rows=pageable.rows(),
        places=pageable.places(),
    )


RULE = Rule(
    "pageable-copies",
    measure,
    reads=OF_TRACE,
    explains=Explains(("blocking_copy",), sets=("host_memory",)),
    requires=("steps",),
    threshold=FEW_LINES,
)
