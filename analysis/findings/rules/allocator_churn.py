"""Device memory is allocated and freed in every step.

What it checks
    Driver calls such as ``cudaMalloc`` and ``cudaFree`` in the steady steps, and the GPU time lost to them (cause
    ``allocator``).
Why it costs time
    PyTorch's allocator normally reuses memory without calling the driver. ``empty_cache()`` returns this memory to the driver,
    so every step must allocate it again. Freeing also waits for the GPU. The same happens if no free block is large enough. Then
    the driver refuses more memory, and the allocator returns its free blocks and asks again.
    The finding says that memory is fragmented if enough memory was free at that time, by the allocator's events
    (``profile_memory=True``). Without events, it uses the allocator's counters (recorded by Sawtooth): at least a tenth of the
    peak must be free. Otherwise memory is full.
    If every step takes memory and none returns any, the memory in use grows: the program keeps tensors of earlier steps.
    Without the caching allocator (``PYTORCH_NO_CUDA_MEMORY_CACHING=1``), each tensor's memory comes from the driver.
What to do
    Turn the caching allocator on again. Remove ``torch.cuda.empty_cache()`` from the loop. If memory is fragmented, set
    ``PYTORCH_ALLOC_CONF=expandable_segments:True`` (before PyTorch 2.9: ``PYTORCH_CUDA_ALLOC_CONF``), and use batches of a
    few fixed lengths. If memory is full, use a smaller batch or keep fewer tensors.
When it is wrong
    Allocations are normal in the first steps, which the steady window leaves out. Inputs that become larger with each step
    look like kept tensors. Memory that is free on another stream
    counts as free, although this stream cannot use it.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.findings.queries.allocator import DETACHED, GIVES_BACK, KEPT_TENSORS, DriverCalls, driver_calls
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_words

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


CACHED = CodeChange("PyTorch", "PYTORCH_NO_CUDA_MEMORY_CACHING=1 python train.py", "python train.py")
FIT_AGAIN = ", so that freed blocks can be reused. Do not call torch.cuda.empty_cache() in the loop."
EXPAND_ALREADY = f"{FIT_AGAIN} Expandable segments are already on."


class _Why(NamedTuple):
    title: str
    action: Action
    risk: str
    changes: tuple[CodeChange, ...]


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the allocator's driver calls cost a relevant share of the step.

    The allocator must call the driver at least once per step, or the driver must refuse memory in one of the steps.
    """
    driver = driver_calls(context)
    every = driver.all
    if every.count < 1 and not driver.retried:
        return
    lost = context.lost_ms("allocator")
    edits: list[Edit] = [WithoutHostCause("allocator"), WithoutWaits(every.ids)]
    predicted = context.predict_ms(edits)
    gain = context.step_ms - predicted if predicted is not None and context.step_ms else lost
    if context.is_trifle(max(lost, gain)):
        return
    why = _why(driver)
    yield Evidence(
        Advice(
            f"{why.title}, {in_words(max(lost, gain))} lost per step",
            why.action,
            note="Predicted by the replay without these driver calls and their waits.",
            risk=why.risk,
            changes=why.changes,
        ),
        lost_ms=max(lost, gain),
        cost_ms=lost,
        threshold_for="larger",
        edits=edits,
        confidence="high" if driver.retried in (0, every.steps) else "medium",
        rows=[*([driver.row()] if driver.fragmented is not None else []), *every.rows()],
        places=every.places(),
    )


def _why(driver: DriverCalls) -> _Why:
    """Return why the allocator calls the driver, and what to do."""
    if driver.uncached:
        return _Why(
            f"PyTorch's caching allocator is off: each tensor's memory comes from the driver, in {driver.all.count:.0f} calls per step",
            Action(
                "Turn",
                "the caching allocator on",
                ": unset PYTORCH_NO_CUDA_MEMORY_CACHING, on ROCm also PYTORCH_NO_HIP_MEMORY_CACHING.",
            ),
            "Tools that check memory, such as compute-sanitizer, find fewer errors with it.",
            (CACHED,),
        )
    if driver.only_takes and not driver.fragmented:
        return _Why(
            f"Memory grows: every step takes more in {driver.all.count:.0f} driver calls, and none returns any",
            Action("Find", KEPT_TENSORS[0], f"{KEPT_TENSORS[1]} Larger inputs than in any earlier step have the same effect."),
            "None, unless other code reads the stored values.",
            DETACHED,
        )
    back = int(driver.all.frame["name"].str.contains(GIVES_BACK).sum())
    if not driver.retried and (back or not driver.fragmented):
        return _Why(
            f"Every step allocates and frees device memory: {driver.all.count:.0f} driver calls ({back / max(driver.all.steps, 1):.0f} of them return memory)",
            Action(
                "Take",
                "torch.cuda.empty_cache() out of the loop",
                ". If nothing calls it, memory is short or shapes vary: use expandable segments.",
            ),
            "Other processes on the GPU can no longer use this memory between steps.",
            CHANGES,
        )
    steps = f"in {driver.retried} of {driver.all.steps} profiled steps"
    does = (
        f"the allocator returns free blocks and asks the driver again {steps}"
        if driver.retried
        else "every step takes more memory from the driver"
    )
    if driver.fragmented and driver.free_bytes is not None and driver.reserved_bytes is not None:
        free = f"{in_bytes(driver.free_bytes)} of {in_bytes(driver.reserved_bytes)} free"
        return _Why(
            f"Memory is fragmented ({free}): {does}",
            Action("Pad", "batches to a few lengths", EXPAND_ALREADY)
            if driver.expandable
            else Action("Use", "expandable segments", f"; pad batches to a few lengths{FIT_AGAIN}"),
            "Padding adds computation.",
            (FEW_LENGTHS,) if driver.expandable else (EXPANDABLE, FEW_LENGTHS),
        )
    is_known = driver.fragmented is not None
    return _Why(
        f"Memory is full{'' if is_known else ' or fragmented'}: {does}",
        Action(
            "Use",
            "less memory",
            f": accumulate gradients over smaller batches, or recompute some activations{'' if is_known or driver.expandable else '. Try expandable segments first'}.",
        ),
        "Smaller batches lower the throughput; recomputing costs up to a third more compute.",
        (SMALLER,) if is_known or driver.expandable else (EXPANDABLE, SMALLER),
    )


RULE = Rule(
    "allocator-churn",
    measure,
    reads=OF_TRACE | {"allocations"},
    explains=Explains(("allocator",)),
    requires=("steps",),
    threshold=ONE_LINE,
)
