"""An average of the weights is updated tensor by tensor.

What it checks
    Operators (``lerp_``, ``mul_`` and ``add_``, ``sub`` and others) on tensors with the shapes of parameters, after the optimizer's
    own launches and before the next forward pass. The number of each operator must fit one update of each tensor.
Why it costs time
    Each tensor takes one to four small kernels, each with its own launch. A kernel of ``torch._foreach_lerp_`` updates many tensors.
What to do
    Use ``torch._foreach_lerp_``, or ``torch.optim.swa_utils.AveragedModel`` with ``multi_avg_fn=get_ema_multi_avg_fn(decay)``.
    Target networks in reinforcement learning are the same kind of average.
When it is wrong
    The average lies on the CPU or has another dtype than the weights. Then convert the average first.
References
    https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.weight_average import ELEMENT_ACCESSES, averaging_kernels
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.passes import merged_body_edits
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MIN_TENSORS = 8  # Averaged tensors per step. Fewer can be a few buffers.
REMAINING_KERNELS = 2  # Kernels of a foreach update per step. Each updates about a hundred tensors.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for e, p in zip(ema.parameters(), model.parameters()):\n    e.mul_(0.999).add_(p, alpha=0.001)   # every step",
        "with torch.no_grad():\n    torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.001)",
    ),
    CodeChange(
        "PyTorch",
        "ema = AveragedModel(model, avg_fn=lambda e, p, n: 0.999 * e + 0.001 * p)",
        "from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn\n\n"
        "ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))\nema.update_parameters(model)   # after optimizer.step()",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if updating the average in one call would save a relevant share of the step."""
    rows, steps = averaging_kernels(context), context.work_steps
    tensors = float(rows["updates"].sum()) / steps
    if tensors < MIN_TENSORS:
        return
    accesses = float(rows["operator"].map(ELEMENT_ACCESSES).sum())
    traffic_share = ELEMENT_ACCESSES["aten::lerp_"] * float(rows["updates"].sum()) / accesses
    shorter = rows.assign(dur_ns=(rows["dur_ns"] * traffic_share).astype("int64"))
    edits = merged_body_edits(shorter, max(int(len(rows) / steps / REMAINING_KERNELS), 1))
    kernels_ms, saved_ms = ms_per_step(rows, steps), context.step.gain_ms(edits)
    yield Evidence(
        Advice(
            f"An average of the weights is updated tensor by tensor: {count_in_words(rows, steps)} and {in_words(kernels_ms)} of each step",
            Action("Update", "the average of the weights in one call", ": torch._foreach_lerp_, or AveragedModel with get_ema_multi_avg_fn."),
            note="Predicted with two kernels that read each weight and its average once and write the average once.",
            risk="Results are rounded differently in the last bits.",
            changes=CHANGES,
        ),
        lost_ms=kernels_ms if saved_ms is None else saved_ms,
        stated_ms=kernels_ms,
        edits=edits,
        rows=evidence_of(rows, steps, ("operator",)),
        threshold_for="gain",
    )  # fmt: skip


RULE = Rule(
    "weights-averaged-one-by-one",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="an average of weights updated tensor by tensor"),
    requires=("steps", "shapes"),
    threshold=FEW_LINES_TO_CHANGE,
)
