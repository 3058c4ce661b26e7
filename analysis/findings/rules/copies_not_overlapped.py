"""The copy of the next batch does not overlap with computation.

What it checks
    Time in which the GPU only copies from the host (exposed copies). Only asynchronous copies count. They use pinned memory, but
    run on the stream of the kernels.
Why it costs time
    Copies and kernels could run at the same time, but the work of one stream runs in order. So the step's first kernel waits
    for the copy of its batch.
What to do
    Copy the next batch on a second stream during this step's computation, and let the compute stream wait for it.
When it is wrong
    The GPU has no memory for one more batch. Or the loader is the limit, so overlap changes nothing.
References
    https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.copies import batch_transfer_note, copies
from sawtooth.analysis.knowledge.hardware import LINK_LIMIT_SHARE
from sawtooth.analysis.replay.edits import WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_bytes, in_words

PREFETCH = """copy = torch.cuda.Stream()
def moved(batch):   # pinned by the loader: pin_memory=True
    if torch.is_tensor(batch): return batch.to("cuda", non_blocking=True)
    if isinstance(batch, dict): return {key: moved(value) for key, value in batch.items()}
    return type(batch)(map(moved, batch)) if isinstance(batch, (list, tuple)) else batch
def used(batch):   # the copy's memory may be reused only after this stream
    if torch.is_tensor(batch): batch.record_stream(torch.cuda.current_stream())
    for part in batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else (): used(part)
def batches(loader):
    ahead = None
    for batch in loader:
        with torch.cuda.stream(copy): following = moved(batch)
        if ahead is not None: yield ahead
        torch.cuda.current_stream().wait_stream(copy)
        used(following); ahead = following
    if ahead is not None: yield ahead
for x, y in batches(loader): ..."""

CHANGES = (CodeChange("PyTorch", 'for x, y in loader:\n    x = x.to("cuda", non_blocking=True)', PREFETCH),)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if exposed asynchronous copies from the host cost a relevant share of the step."""
    inputs = copies(context, "(?i)HtoD|HostToDevice")
    inputs = inputs.where(~inputs.frame["name"].str.contains("pageable", case=False))
    exposed_ms = sum(context.lost_ms(cause, owner="exposed_memcpy") for cause in ("unattributed", "copy"))
    lost_ms = min(exposed_ms, inputs.ms_per_step)
    if not len(inputs.frame) or context.is_negligible(lost_ms):
        return
    if context.share(inputs.ms_per_step) >= LINK_LIMIT_SHARE:
        return  # The step cannot be shorter than these copies, with or without overlap.
    bytes_per_step = float(inputs.frame["bytes"].fillna(0).sum()) / max(inputs.steps, 1)
    yield Evidence(
        Advice(
            f"No kernel overlaps the copies of input{batch_transfer_note(context, inputs)}: {in_bytes(bytes_per_step)} and {in_words(lost_ms)} of each step",
            Action("Copy", "the next batch on a second stream during this step's computation"),
            note="Predicted by the replay without the copies, as if they were fully overlapped.",
            risk="One more batch takes GPU memory. Without record_stream, the allocator may reuse the batch's memory too early.",
            changes=CHANGES,
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=[WithoutOps(inputs.ids, host_too=False)],
        rest="the waits around these copies",
        confidence="high",
        rows=inputs.rows(),
        spans=inputs.spans(),
    )


RULE = Rule(
    "copies-not-overlapped",
    measure,
    reads=TRACE_SOURCES,
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)
