"""Input goes to the GPU in many small copies.

What it checks
    Copies from host memory that take at most 10 µs in the counted steps. The rule tensors-made-on-cpu reports tensors that are made
    on the CPU. Tables of addresses that FSDP copies for its buffers are not input.
Why it costs time
    The host needs longer to launch a short copy than the bus needs for the transfer. If the copy is pageable or blocking, the
    host also waits for it.
What to do
    Put all values into one tensor, copy it once and slice it on the GPU. Keep constants on the GPU. Collate a batch into few
    tensors.
When it is wrong
    The values arrive one by one from elsewhere.
References
    https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html#data-transfer-between-host-and-device
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.acting import acting_passes
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.communication import calls_inside
from sawtooth.analysis.findings.queries.copies import copies, copies_of_made_tensors, waits_for_copies
from sawtooth.analysis.replay.edits import WithoutCalls
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_bytes, in_number

SHORT_NS = 10_000  # An operator and its launch take the host about this long. PCIe 5 moves half a megabyte in this time.
MIN_COPIES = 10  # Per step. Inputs, labels and one or two masks are not a problem.
SHARDING_OPERATORS = "fsdp::"  # Prefix of the operators of `fully_shard` that split and join buffers by tables of addresses.

CHANGES = (
    CodeChange(
        "PyTorch",
        "batch = {name: value.cuda() for name, value in batch.items()}   # fifty scalars",
        'values = torch.tensor(scalars).pin_memory().cuda(non_blocking=True)   # one copy\nbatch["weight"] = values[0]',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if joining at least MANY small copies would save a relevant share of the step."""
    uploads = copies(context, "(?i)HtoD|HostToDevice")
    made_on_cpu = set(copies_of_made_tensors(context).ids)
    sharding_calls = calls_inside(context, SHARDING_OPERATORS)["call_id"]
    acts = acting_passes(context)
    if acts is not None:  # An observation is known only after the environment has responded to the last action.
        uploads = uploads.where(~uploads.frame["call_id"].isin(acts.calls))
    is_short = uploads.frame["end_ns"] - uploads.frame["start_ns"] <= SHORT_NS
    is_input = (
        uploads.frame["call_id"].notna()
        & ~uploads.frame["id"].isin(made_on_cpu)
        & ~uploads.frame["call_id"].isin(sharding_calls)
    )
    small = uploads.where(is_short & is_input)
    if small.count_per_step < MIN_COPIES:
        return
    kept_calls = small.frame.drop_duplicates("step")["call_id"]
    removed_calls = tuple(
        int(call) for call in np.setdiff1d(small.frame["call_id"].to_numpy(np.int64), kept_calls.to_numpy(np.int64))
    )
    edits = [WithoutCalls((*removed_calls, *waits_for_copies(context, removed_calls)))]
    predicted_ms = context.predict_ms(edits)
    saved_ms = context.step_ms - predicted_ms if predicted_ms is not None and context.step_ms else small.ms_per_step
    if context.is_negligible(saved_ms):
        return
    sizes = small.frame["bytes"].dropna()  # Not every trace has the sizes.
    yield Evidence(
        Advice(
            f"Input goes to the GPU in {in_number(small.count_per_step, 'copy', 'copies')} per step"
            + (f" of {in_bytes(float(sizes.median()))} each" if len(sizes) else ""),
            Action("Put", "small tensors into one", ", copy it once and slice it on the GPU."),
            note="Predicted with one of these copies per step. The host's time before the other copies and its waits for them are removed.",
            risk="None, unless each value depends on the previous value.",
            changes=CHANGES,
        ),
        lost_ms=saved_ms,
        cost_ms=saved_ms,
        edits=edits,
        rows=small.rows(),
        spans=small.spans(),
    )


RULE = Rule(
    "small-copies",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("launch_bound",), called="many small copies"),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first, because copies of input stay outside a CUDA graph.",
        ),
    ),
)
