"""Elementwise work is not fused.

What it checks
    Consecutive kernels of the forward and backward pass that memory limits (elementwise operators, norms, reductions, copies).
    No matrix product, convolution or attention lies between them. The model must not be compiled. A CUDA graph shows no
    operators. So in a graph, only kernels between the first and the last product of a step count, because the optimizer's
    kernels follow the last product.
Why it costs time
    Each kernel reads its inputs from memory and writes its result back. Compiled code reads the inputs once and writes the
    result once.
What to do
    Use ``torch.compile(model)``. Inductor makes a few Triton kernels of each group. In two test models, the new kernels of a
    group took 0.9 and 1.2 times as long as the group's longest kernel.
When it is wrong
    Shapes change in every step, so the model is compiled again each time. Then mark the changing dimensions as dynamic.
    torch.compile stops at nn.LSTM, nn.GRU and nn.RNN, which cuDNN runs. So only the work around such layers counts. Inductor
    generates no code for complex numbers, so their kernels do not count.
References
    https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.actions import MODEL
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import SHORTEST_KERNEL_NS
from sawtooth.analysis.findings.loops.weight_average import averaging_kernels
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CHOICE_WITH_COSTS
from sawtooth.analysis.findings.queries.chains import LOSS, compiling_edits, fusable_groups, fused_ns, graph_kernels
from sawtooth.analysis.findings.queries.plan_builds import AFTER_LOADING, loads_code
from sawtooth.analysis.findings.queries.recurrent import LAYER_OPERATORS, recurrent_layer
from sawtooth.analysis.findings.recorded.counted_operations import (
    count_in_words,
    evidence_of,
    launched_by_optimizer,
    ms_per_step,
)
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange("PyTorch", "model = $model.cuda()", "model = torch.compile($model.cuda())", slot_defaults=MODEL),
    CodeChange(
        "Lightning", "model = LitNet()", "model = LitNet()\nmodel.compile()   # torch.compile(LitNet()) stops at self.log"
    ),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., torch_compile=True)"),
)
# torch.compile stops at a recurrent layer, so the parts before and after the layer are compiled.
AROUND_LAYER = (
    CodeChange(
        "PyTorch",
        "model = $model.cuda()",
        "model = $model.cuda()\nmodel.encoder.compile()\nmodel.head.compile()",
        slot_defaults=MODEL,
    ),
)
# For a step that the user's own code captures as a CUDA graph.
BEFORE_CAPTURE_CHANGES = (
    CodeChange(
        "PyTorch",
        "model = $model.cuda()",
        "model = torch.compile($model.cuda())   # before the graph is captured",
        slot_defaults=MODEL,
    ),
)
FUSION_NOTE = "Predicted with one kernel for each group of neighbouring kernels. The new kernel takes as long as the group's longest kernel. The optimizer does not change."
LOSS_NOTE = "This includes the loss: compile the loss too if the loop computes it outside of the model."
MAX_NAMED_KINDS = 2  # Kinds of work in a title.
MIN_NAMED = 0.1  # Share of the time of these kernels. A kind with less is not named.
NAMES = {
    "elementwise": "elementwise work",
    "norm": "norms",
    "softmax": "softmaxes",
    "reduction": "reductions",
    "copy": "copies",
}
BEFORE_CAPTURE = Action(
    "Compile", "the model before its CUDA graph is captured", ": neighbouring elementwise kernels become a few kernels."
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if compiling the model would save a relevant share of the step."""
    steps = context.work_steps
    work = context.work
    if work["kernel"].str.startswith("triton_").any():
        return  # The model is already compiled.
    captured = work["gpu_op_id"].isin(graph_kernels(context)).to_numpy(bool)
    shortest_ns = SHORTEST_KERNEL_NS if captured.any() else 0
    layer = recurrent_layer(context)
    layer_ops = work.loc[work["operator"].str.match(LAYER_OPERATORS, na=False), "gpu_op_id"].to_numpy(np.int64)
    averaging_ops = averaging_kernels(context)["gpu_op_id"].to_numpy(np.int64)
    left_out_ops = np.concatenate([launched_by_optimizer(context.recording, context.rank.device), averaging_ops, layer_ops])
    groups = fusable_groups(work, left_out_ops, captured)
    if not groups:
        return
    rows, dur_ns = work.iloc[np.concatenate(groups)], work["dur_ns"].to_numpy()
    kernels_ms = ms_per_step(rows, steps)
    saved_ns = float(rows["dur_ns"].sum()) - sum(fused_ns(dur_ns[group], shortest_ns) for group in groups)
    saved_ms = min(saved_ns / 1e6 / steps, kernels_ms)
    loading = loads_code(context)
    edits = [] if loading else compiling_edits(work, groups, shortest_ns)
    gain_ms = context.step.gain_ms(edits)
    includes_loss = rows["operator"].isin(LOSS).any()
    if context.is_negligible(gain_ms if gain_ms is not None else saved_ms):
        return
    fusion_note = f"{FUSION_NOTE} {LOSS_NOTE}" if includes_loss else FUSION_NOTE
    yield Evidence(
        Advice(
            f"{_not_fused(rows)}: {count_in_words(rows, steps)}, {in_words(kernels_ms)} of each step",
            BEFORE_CAPTURE if captured.any() else _action(layer),
            note=AFTER_LOADING if loading else fusion_note,
            risk="Compilation takes minutes at the start and again when shapes change.",
            changes=BEFORE_CAPTURE_CHANGES if captured.any() else AROUND_LAYER if layer else CHANGES,
        ),
        lost_ms=saved_ms,
        cost_ms=saved_ms,
        threshold_for="gain",
        edits=edits,
        is_choice=True,
        rows=evidence_of(rows, steps, ("operator",)),
    )


def _not_fused(rows: pd.DataFrame) -> str:
    """Return which kinds of work are not fused, the longest first; the finding's time is of all of them."""
    times = rows.groupby("category", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    kinds_of_work = [NAMES[str(kind)] for kind in times.index[times >= MIN_NAMED * times.sum()]]
    *first_kinds, last = (
        kinds_of_work if len(kinds_of_work) <= MAX_NAMED_KINDS else [*kinds_of_work[:MAX_NAMED_KINDS], "other work"]
    )
    kinds = f"{', '.join(first_kinds)} and {last}" if first_kinds else last
    return f"{kinds[0].upper()}{kinds[1:]} {'are' if first_kinds or last.endswith('s') else 'is'} not fused"


def _action(layer: str | None) -> Action:
    """Return the advice to compile the model, or its parts around the recurrent ``layer``."""
    if layer is None:
        return Action("Compile", "the model", ": neighbouring elementwise kernels become a few kernels.")
    return Action(
        "Compile",
        f"the parts before and after {layer}",
        f", each by itself: torch.compile stops at {layer}. Neighbouring elementwise kernels become a few kernels.",
    )


RULE = Rule(
    "elementwise-chains",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(topics=frozenset({"choice"}), sets=("compile",)),
    requires=("steps", "torch.compile"),
    threshold=CHOICE_WITH_COSTS,
    same_work_as="smaller findings",
)
