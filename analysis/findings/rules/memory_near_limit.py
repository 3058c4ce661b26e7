"""Memory is nearly full.

What it checks
    Peak memory in use relative to the GPU's memory, by telemetry or the allocator.
Why it costs time
    Near the limit the allocator frees memory and retries, fragmentation costs more, and one longer sequence can end the run.
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
from sawtooth.analysis.units import in_bytes, percent

NEAR = 0.90  # Share of the memory. Above it, a batch that is a tenth larger no longer fits.

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
    """Yield a finding if peak memory is above NEAR."""
    use = memory_use(context)
    if use is None or use[0] < NEAR * use[1]:
        return
    yield Evidence(
        Advice(
            f"Memory is {percent(use[0] / use[1])} full: {in_bytes(use[0])} of {in_bytes(use[1])}",
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
        rows=[{"memory_used_bytes": use[0], "memory_bytes": use[1]}],
    )


RULE = Rule(
    "memory-near-limit",
    measure,
    reads=frozenset({"allocations", "telemetry"}),
    explains=Explains(topics=frozenset({"memory"})),
)
