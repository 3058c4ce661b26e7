"""Device memory is allocated and freed in every step.

What it checks
    ``cudaMalloc``, ``cudaFree`` and their kin in the steady steps, and what the GPU loses to them (cause ``allocator``).
Why it costs time
    PyTorch's allocator keeps memory and hands it out again without the driver. ``empty_cache()`` gives it back, so that every step frees
    (which waits for the GPU) and allocates anew. The same happens when memory is so short that the allocator has to retry.
What to do
    Take ``torch.cuda.empty_cache()`` out of the loop. If shapes vary, ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``.
When it is wrong
    In the first steps, which the steady window leaves out, allocations are normal.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.queries.calls import calls
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause, WithoutWaits
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

WORTH_NAMING = 0.01  # of the step
CALLS = r"^(cuda|hip)(Malloc|Free)(Async)?$|^(cu|hip)Mem(Create|Map|Unmap|Release|Alloc|Free)"

CHANGES = (
    CodeChange("PyTorch", "torch.cuda.empty_cache()        # every step", "# not in the loop; the allocator reuses its memory"),
    CodeChange(
        "PyTorch", "python train.py", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py   # shapes vary"
    ),
    CodeChange(
        "Transformers", "TrainingArguments(torch_empty_cache_steps=1)", "TrainingArguments(torch_empty_cache_steps=None)"
    ),
)


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when the allocator calls the driver at least once a step and that costs more than WORTH_NAMING."""
    driver_calls = calls(context, CALLS)
    if driver_calls.count < 1:
        return
    lost = context.lost_ms("allocator")
    edits: list[Edit] = [WithoutHostCause("allocator"), WithoutWaits(driver_calls.ids)]
    predicted = context.predict_ms(edits)
    gain = context.step_ms - predicted if predicted is not None and context.step_ms else lost
    if context.share(max(lost, gain)) < WORTH_NAMING:
        return
    frees = int(driver_calls.frame["name"].str.contains("Free|Unmap|Release").sum()) / max(driver_calls.steps, 1)
    yield context.finding(
        RULE.slug,
        f"Every step allocates and frees device memory: {driver_calls.count:.0f} driver calls ({frees:.0f} of them give memory back), {in_words(max(lost, gain))} lost",
        "Take torch.cuda.empty_cache() out of the loop; where nothing calls it, memory is short or shapes vary: use expandable segments.",
        ceiling_ms=max(lost, gain),
        edits=edits,
        confidence="high",
        note="The driver's calls and their waits removed from the replay.",
        risk="Other processes on the GPU no longer get the memory between steps.",
        changes=CHANGES,
        evidence=driver_calls.rows(),
        places=driver_calls.places(),
    )


RULE = Rule("allocator-churn", ("steps",), check, Explains(("allocator",)))
