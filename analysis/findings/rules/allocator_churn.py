"""Device memory is allocated and freed in every step.

What it checks
    ``cudaMalloc``, ``cudaFree`` and their kin in the steady steps, and what the GPU loses to them (cause ``allocator``).
Why it costs time
    PyTorch's allocator keeps memory and hands it out again without the driver. ``empty_cache()`` gives it back, so that every step frees
    (which waits for the GPU) and allocates anew. The same happens where no block that it keeps can hold what is asked for: it asks the driver, is
    refused, gives its free blocks back and asks again. That memory is in pieces (fragmented) is said where as much as is asked for was free at that
    time, by the allocator's events (``profile_memory=True``), or where a tenth of its peak was, by its counters (recorded by Sawtooth); else it is full.
What to do
    Take ``torch.cuda.empty_cache()`` out of the loop. If memory is in pieces, ``PYTORCH_ALLOC_CONF=expandable_segments:True`` (before PyTorch 2.9
    ``PYTORCH_CUDA_ALLOC_CONF``), and batches of a few fixed lengths. If it is full, a smaller batch or less to keep.
When it is wrong
    In the first steps, which the steady window leaves out, allocations are normal. Memory that is free on another stream counts as free.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.queries.allocator import GIVES_BACK, DriverCalls, driver_calls
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_bytes, in_words

WORTH_NAMING = 0.01  # of the step

EMPTIED = CodeChange(
    "PyTorch", "torch.cuda.empty_cache()        # every step", "# not in the loop; the allocator reuses its memory"
)
EXPANDABLE = CodeChange(
    "PyTorch",
    "python train.py",
    "PYTORCH_ALLOC_CONF=expandable_segments:True python train.py   # before PyTorch 2.9: PYTORCH_CUDA_ALLOC_CONF",
)
FEW_LENGTHS = CodeChange(
    "Transformers", "DataCollatorWithPadding(tokenizer)", "DataCollatorWithPadding(tokenizer, pad_to_multiple_of=256)"
)
SMALLER = CodeChange(
    "Transformers",
    "TrainingArguments(per_device_train_batch_size=64)",
    "TrainingArguments(per_device_train_batch_size=32, gradient_accumulation_steps=2)",
)
CHANGES = (
    EMPTIED,
    EXPANDABLE,
    CodeChange(
        "Transformers", "TrainingArguments(torch_empty_cache_steps=1)", "TrainingArguments(torch_empty_cache_steps=None)"
    ),
)


class _Why(NamedTuple):
    title: str
    fix: str
    risk: str
    changes: tuple[CodeChange, ...]


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when the allocator calls the driver at least once a step, or is refused in any, and that costs more than WORTH_NAMING."""
    asked = driver_calls(context)
    every = asked.all
    if every.count < 1 and not asked.retried:
        return
    lost = context.lost_ms("allocator")
    edits: list[Edit] = [WithoutHostCause("allocator"), WithoutWaits(every.ids)]
    predicted = context.predict_ms(edits)
    gain = context.step_ms - predicted if predicted is not None and context.step_ms else lost
    if context.share(max(lost, gain)) < WORTH_NAMING:
        return
    why = _why(asked)
    yield context.finding(
        RULE.slug,
        f"{why.title}, {in_words(max(lost, gain))} lost{' a step' if asked.retried else ''}",
        why.fix,
        ceiling_ms=max(lost, gain),
        edits=edits,
        confidence="high" if asked.retried in (0, every.steps) else "medium",  # how often in all steps a few do not tell well
        note="The driver's calls and their waits removed from the replay.",
        risk=why.risk,
        changes=why.changes,
        evidence=[*([asked.row()] if asked.in_pieces is not None else []), *every.rows()],
        places=every.places(),
    )


def _why(asked: DriverCalls) -> _Why:
    """Say why the allocator goes to the driver, and what to do about that."""
    back = int(asked.all.frame["name"].str.contains(GIVES_BACK).sum())
    if not asked.retried and (back or not asked.in_pieces):
        return _Why(
            f"Every step allocates and frees device memory: {asked.all.count:.0f} driver calls ({back / max(asked.all.steps, 1):.0f} of them give memory back)",
            "Take torch.cuda.empty_cache() out of the loop; where nothing calls it, memory is short or shapes vary: use expandable segments.",
            "Other processes on the GPU no longer get the memory between steps.",
            CHANGES,
        )
    steps = f"in {asked.retried} of {asked.all.steps} profiled steps"
    does = (
        f"the allocator gives blocks back and asks the driver again {steps}"
        if asked.retried
        else "every step takes more from the driver"
    )
    if asked.in_pieces and asked.free_bytes is not None and asked.reserved_bytes is not None:
        free = f"{in_bytes(asked.free_bytes)} of {in_bytes(asked.reserved_bytes)} free"
        first = "Segments expand already: " if asked.expandable else "Use expandable segments; "
        return _Why(
            f"Memory is in pieces ({free}): {does}",
            f"{first}pad batches to a few lengths, so that freed blocks fit again; no torch.cuda.empty_cache() in the loop.",
            "Padded lengths compute on padding.",
            (FEW_LENGTHS,) if asked.expandable else (EXPANDABLE, FEW_LENGTHS),
        )
    known = asked.in_pieces is not None
    return _Why(
        f"Memory is full{'' if known else ' or in pieces'}: {does}",
        f"Keep less: accumulate over smaller batches, or recompute some activations{'' if known or asked.expandable else '; try expandable segments first'}.",
        "Smaller batches lower the throughput; recomputing costs up to a third more compute.",
        (SMALLER,) if known or asked.expandable else (EXPANDABLE, SMALLER),
    )


RULE = Rule("allocator-churn", ("steps",), check, Explains(("allocator",)), reads=OF_TRACE | {"allocations"})
