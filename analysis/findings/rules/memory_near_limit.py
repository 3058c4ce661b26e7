"""Memory is nearly full.

What it checks
    The share of the GPU's memory in use at the peak, by telemetry or the allocator's events.
Why it costs time
    Near the limit, the allocator frees memory and retries, and fragmentation makes more requests fail. A single longer sequence
    can end the run.
What to do
    Recompute some activations, use a smaller batch with accumulation, or use expandable segments.
When it is wrong
    The framework takes all memory at the start (JAX), so memory always looks full.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import Advice, Evidence, Rule
from sawtooth.analysis.findings.queries.telemetry import memory_use
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_memory, percent

MIN_USED_SHARE = 0.90  # Of the memory. With more in use, a batch that is a tenth larger no longer fits.

CHANGES = (
    CodeChange(
        "PyTorch",
        "python train.py",
        "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py   # before PyTorch 2.9: PYTORCH_CUDA_ALLOC_CONF",
    ),
    CodeChange(
        "Transformers",
        "TrainingArguments(per_device_train_batch_size=64)",
        "TrainingArguments(per_device_train_batch_size=32, gradient_accumulation_steps=2)",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if at least MIN_USED_SHARE of the memory is in use at the peak."""
    memory = memory_use(context)
    if memory is None:
        return
    used_bytes, total_bytes = memory
    if used_bytes < MIN_USED_SHARE * total_bytes:
        return
    yield Evidence(
        Advice(
            f"Memory is {percent(used_bytes / total_bytes)} full: {in_memory(used_bytes)} of {in_memory(total_bytes)}",
            Action(
                "Leave",
                "a tenth of the memory free",
                ": accumulate over smaller batches, recompute some activations, or use expandable segments.",
            ),
            note="This does not change the step time, so nothing is predicted.",
            risk="Smaller batches lower the throughput; recomputing costs up to a third more compute.",
            changes=CHANGES,
        ),
        confidence="high",
        severity="warning",
        rows=[{"memory_used_bytes": used_bytes, "memory_bytes": total_bytes}],
    )


RULE = Rule(
    "memory-near-limit",
    measure,
    reads=frozenset({"allocations", "telemetry"}),
    explains=Explains(topics=frozenset({"memory"})),
)
