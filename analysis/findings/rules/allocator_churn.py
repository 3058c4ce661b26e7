"""Device memory is allocated and freed in every step.

What it checks
    Driver calls such as ``cudaMalloc`` and ``cudaFree`` in the counted steps, and the GPU time lost to them (cause
    ``allocator``).
Why it costs time
    PyTorch's allocator normally reuses memory without calling the driver. ``empty_cache()`` returns this memory to the driver,
    so every step must allocate the memory again. Freeing also waits for the GPU. The allocator also calls the driver if no free
    block is large enough. If the driver then refuses, the allocator returns its free blocks and asks again.
    The finding says that memory is fragmented if the allocator had enough free memory at that time. Its events show this
    (``profile_memory=True``). Without events, its counters must show that a tenth of the peak was free (recorded by Sawtooth).
    Otherwise memory is full.
    If every step takes memory and none returns any, the program keeps tensors of earlier steps.
    Without the caching allocator (``PYTORCH_NO_CUDA_MEMORY_CACHING=1``), each tensor's memory comes from the driver.
What to do
    Turn the caching allocator on again. Remove ``torch.cuda.empty_cache()`` from the loop. If memory is fragmented, set
    ``PYTORCH_ALLOC_CONF=expandable_segments:True`` (before PyTorch 2.9: ``PYTORCH_CUDA_ALLOC_CONF``), and use batches of a
    few fixed lengths. If memory is full, use a smaller batch or keep fewer tensors.
When it is wrong
    Inputs that become larger with each step look like tensors that are not freed. Memory that is free on another stream counts as free,
    although this stream cannot use it.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.allocator import DETACHED, RETAINED_TENSORS, RETURNING_CALLS, DriverCalls, driver_calls
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_memory, in_words

NO_EMPTY_CACHE = CodeChange(
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
SMALLER_BATCH = CodeChange(
    "Transformers",
    "TrainingArguments(per_device_train_batch_size=64)",
    "TrainingArguments(per_device_train_batch_size=32, gradient_accumulation_steps=2)",
)
CHANGES = (
    NO_EMPTY_CACHE,
    EXPANDABLE,
    CodeChange(
        "Transformers", "TrainingArguments(torch_empty_cache_steps=1)", "TrainingArguments(torch_empty_cache_steps=None)"
    ),
)
CACHED = CodeChange("PyTorch", "PYTORCH_NO_CUDA_MEMORY_CACHING=1 python train.py", "python train.py")
BLOCKS_FIT = ", so that freed blocks can be reused. Do not call torch.cuda.empty_cache() in the loop."
ALREADY_EXPANDABLE = f"{BLOCKS_FIT} Expandable segments are already on."


class _ReasonOfCalls(NamedTuple):
    title: str
    action: Action
    risk: str
    changes: tuple[CodeChange, ...]


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the allocator's driver calls cost a relevant share of the step.

    The allocator must call the driver at least once per step, or the driver must refuse memory in one of the steps.
    """
    driver = driver_calls(context)
    all_calls = driver.all
    if all_calls.count_per_step < 1 and not driver.retried:
        return
    lost_ms = context.lost_ms("allocator")
    edits: list[Edit] = [WithoutHostCause("allocator"), WithoutWaits(all_calls.ids)]
    predicted_ms = context.predict_ms(edits)
    gain_ms = context.step_ms - predicted_ms if predicted_ms is not None and context.step_ms else lost_ms
    if context.is_negligible(max(lost_ms, gain_ms)):
        return
    reason = _reason_of_calls(driver)
    yield Evidence(
        Advice(
            f"{reason.title}, {in_words(max(lost_ms, gain_ms))} lost per step",
            reason.action,
            note="Predicted by the replay without these driver calls and their waits.",
            risk=reason.risk,
            changes=reason.changes,
        ),
        lost_ms=max(lost_ms, gain_ms),
        cost_ms=lost_ms,
        threshold_for="larger",
        edits=edits,
        confidence="high" if driver.retried in (0, all_calls.steps) else "medium",
        rows=[*([driver.row()] if driver.fragmented is not None else []), *all_calls.rows()],
        spans=all_calls.spans(),
    )


def _reason_of_calls(driver: DriverCalls) -> _ReasonOfCalls:
    """Return why the allocator calls the driver: the finding's title, action, risk and code changes."""
    if driver.uncached:
        return _ReasonOfCalls(
            f"PyTorch's caching allocator is off: each tensor's memory comes from the driver, in {driver.all.count_per_step:.0f} calls per step",
            Action(
                "Turn",
                "the caching allocator on",
                ": unset PYTORCH_NO_CUDA_MEMORY_CACHING, on ROCm also PYTORCH_NO_HIP_MEMORY_CACHING.",
            ),
            "Tools that check memory, such as compute-sanitizer, find fewer errors with the caching allocator.",
            (CACHED,),
        )
    if driver.never_returns and not driver.fragmented:
        return _ReasonOfCalls(
            f"Memory grows: every step takes more memory in {driver.all.count_per_step:.0f} driver calls, and none returns any",
            Action(
                "Find",
                RETAINED_TENSORS[0],
                f"{RETAINED_TENSORS[1]} Larger inputs than in any earlier step have the same effect.",
            ),
            "None, unless other code reads the stored values.",
            DETACHED,
        )
    returning_calls = int(driver.all.frame["name"].str.contains(RETURNING_CALLS).sum())
    if not driver.retried and (returning_calls or not driver.fragmented):
        return _ReasonOfCalls(
            f"Every step allocates and frees device memory: {driver.all.count_per_step:.0f} driver calls ({returning_calls / max(driver.all.steps, 1):.0f} of them free memory)",
            Action(
                "Take",
                "torch.cuda.empty_cache() out of the loop",
                ". If nothing calls it, memory is short or shapes vary: use expandable segments.",
            ),
            "Other processes on the GPU can no longer use this memory between steps.",
            CHANGES,
        )
    steps = f"in {driver.retried} of {driver.all.steps} profiled steps"
    behaviour = (
        f"the allocator returns free blocks and asks the driver again {steps}"
        if driver.retried
        else "every step takes more memory from the driver"
    )
    if driver.fragmented and driver.free_bytes is not None and driver.reserved_bytes is not None:
        free = f"{in_memory(driver.free_bytes)} of {in_memory(driver.reserved_bytes)} free"
        return _ReasonOfCalls(
            f"Memory is fragmented ({free}): {behaviour}",
            Action("Pad", "batches to a few lengths", ALREADY_EXPANDABLE)
            if driver.expandable
            else Action("Use", "expandable segments", f"; pad batches to a few lengths{BLOCKS_FIT}"),
            "Padding adds computation.",
            (FEW_LENGTHS,) if driver.expandable else (EXPANDABLE, FEW_LENGTHS),
        )
    is_known = driver.fragmented is not None
    return _ReasonOfCalls(
        f"Memory is full{'' if is_known else ' or fragmented'}: {behaviour}",
        Action(
            "Use",
            "less memory",
            f": accumulate gradients over smaller batches, or recompute some activations{'' if is_known or driver.expandable else '. Try expandable segments first'}.",
        ),
        "Smaller batches lower the throughput; recomputing costs up to a third more compute.",
        (SMALLER_BATCH,) if is_known or driver.expandable else (EXPANDABLE, SMALLER_BATCH),
    )


RULE = Rule(
    "allocator-churn",
    measure,
    reads=TRACE_SOURCES | {"allocations"},
    explains=Explains(("allocator",)),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
