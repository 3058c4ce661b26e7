"""Batches are copied from pageable memory.

What it checks
    Copies from pageable memory to the GPU, and the time that the GPU loses while the host waits for them (cause
    ``blocking_copy``).
Why it costs time
    The driver copies pageable memory through its own buffer, at a fraction of the bus speed. The call returns only after the
    copy, so the host launches nothing meanwhile.
What to do
    Use ``pin_memory=True`` in the loader and ``non_blocking=True`` in the copy. You need both: with only one of them, the
    copy still blocks the host.
When it is wrong
    The step itself makes the tensors. Then it is better to make them on the GPU, which the rule tensors-made-on-cpu advises.
References
    https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loader_limits import THREAD_BYTES_PER_NS
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import CountedEvents, lost_in_calls_ms
from sawtooth.analysis.findings.queries.copies import (
    PAGEABLE_TO_DEVICE,
    PINNED_BYTES_PER_NS,
    batch_transfer_note,
    copies,
    copies_of_made_tensors,
)
from sawtooth.analysis.findings.queries.loading import loads_in_workers
from sawtooth.analysis.replay.edits import BETWEEN_CALLS_NS, PYTHON, Edit, TimedOps, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_words

# Fastest and slowest release of a worker's batch by the loop, in bytes per ns. Measured on the host of an H200: 38.5 MB in 4.2 to
# 7.4 ms, and 10.3 MB in 1.7 ms. Slower Python time is other work.
FREED_BYTES_PER_NS = (10.0, 5.0)
PINNED_NOTE = "Predicted with the speed of pinned copies over PCIe 5 (55 GB/s), without the host's waits for them."
FREED_NOTE = " The Python time after the copies fits the release of the loader's batches, which then leaves the loop."
PINNING_THREAD_NOTE = "Not predicted: one thread pins the batches of all workers. This thread would need about {ms} per step, so the loop would wait for it."
SEND_LESS = Action(
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
    lost_ms = lost_in_calls_ms(context, "blocking_copy", calls)
    if not calls or context.is_negligible(lost_ms):
        return
    copy_bytes = pageable.frame["bytes"].fillna(0)
    copy_ns = pageable.frame["end_ns"] - pageable.frame["start_ns"]
    pinned_ns = [
        min(int(size / PINNED_BYTES_PER_NS), int(ns)) if size else int(ns) for size, ns in zip(copy_bytes, copy_ns, strict=True)
    ]
    edits: list[Edit] = [
        WithoutWaits(calls),
        WithoutHostCause("blocking_copy", calls=calls),
        TimedOps(pageable.ids, tuple(pinned_ns)),
    ]
    freeing = _freeing_edits(context, pageable) if loads_in_workers(context) else []
    edits += freeing
    bytes_per_step = float(copy_bytes.sum()) / pageable.steps
    amount = f"{in_bytes(bytes_per_step)} per step{batch_transfer_note(context, pageable)}"
    title = f"{amount} are copied from pageable memory while the host waits: {in_words(lost_ms)} lost"
    thread_ms = bytes_per_step / THREAD_BYTES_PER_NS / 1e6 if loads_in_workers(context) else 0.0
    predicted_ms = context.predict_ms(edits)
    thread_limits = predicted_ms is not None and thread_ms > predicted_ms
    yield Evidence(
        Advice(
            title,
            SEND_LESS
            if thread_limits
            else Action(
                "Pin", "the loader's memory and copy without blocking", ": pin_memory=True and .to(device, non_blocking=True)."
            ),
            note=PINNING_THREAD_NOTE.format(ms=in_words(thread_ms))
            if thread_limits
            else PINNED_NOTE + FREED_NOTE * bool(freeing),
            risk="Pinned memory cannot be swapped. Change a batch in place only after its copy has ended.",
            changes=CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=[] if thread_limits else edits,
        confidence="medium" if thread_limits else "high",
        rows=pageable.rows(),
        spans=pageable.spans(),
    )


def _freeing_edits(context: RuleContext, pageable: CountedEvents) -> list[Edit]:
    """Return the edit that moves the release of batches out of the loop; empty if none is seen.

    The loop releases the shared memory of a batch when its variables get the tensors on the GPU. This is Python time before the
    launch that follows a copy. It counts only if it fits the batch's bytes. The loader's thread releases batches that it pins.
    """
    if context.whatif is None:
        return []
    host, ops = context.whatif.problem.host, context.whatif.problem.ops
    launching = np.unique(ops.node[ops.node >= 0])
    calls, all_ns, freed_ns = list[int](), 0, 0.0
    for _, copied in pageable.frame.groupby("step"):
        nodes = np.flatnonzero(np.isin(host.call, copied["call_id"].dropna().to_numpy(np.int64)))
        next_place = np.searchsorted(launching, nodes, side="right")
        is_followed = next_place < len(launching)
        following = launching[next_place[is_followed]]
        following = np.unique(following[host.thread[following] == host.thread[nodes[is_followed]]])
        python_ns = host.gap_parts[following, PYTHON]
        spare_ns = float(np.maximum(python_ns - BETWEEN_CALLS_NS, 0).sum())
        least_ns, most_ns = (float(copied["bytes"].sum()) / speed for speed in FREED_BYTES_PER_NS)
        if spare_ns >= least_ns > 0:
            calls += host.call[following].tolist()
            all_ns += int(python_ns.sum())
            freed_ns += min(spare_ns, most_ns)
    return [WithoutHostCause("python_host", 1 - freed_ns / all_ns, tuple(calls), keep_at_most=1.0)] if calls else []


RULE = Rule(
    "pageable-copies",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("blocking_copy",), sets=("host_memory",)),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)
