"""Elementwise work is not fused.

What it checks
    Kernels of the forward and backward pass that are limited by memory (elementwise operators, norms, reductions, copies) and
    follow one another, without a matrix product, convolution or attention between them. The model must not be compiled. A CUDA
    graph shows no operators. In it, only kernels between the first and the last product of a step count, because the
    optimizer's kernels follow after them.
Why it costs time
    Each kernel reads its inputs from memory and writes its result back. Compiled code reads the inputs once and writes the
    result once.
What to do
    Use ``torch.compile(model)``. Inductor makes a few Triton kernels of each group. In two test models, these
    took 0.9 and 1.2 times as long as the longest of the kernels that they replaced.
When it is wrong
    Shapes change in every step, so the model is compiled again each time. Then mark them as dynamic. The first steps take
    minutes. torch.compile stops at nn.LSTM, nn.GRU and nn.RNN, which cuDNN runs, so only the work around them counts.
References
    https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.actions import MODEL
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import SHORTEST_KERNEL_NS
from sawtooth.analysis.findings.loops.weight_average import averaging
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CHOICE
from sawtooth.analysis.findings.queries.chains import LOSS, between_products, compiling_edits, fused_ns, graph_kernels
from sawtooth.analysis.findings.queries.plan_builds import AFTER_LOADING, loads_code
from sawtooth.analysis.findings.queries.recurrent import OF_A_LAYER, recurrent_layer
from sawtooth.analysis.findings.recorded.counted_operations import (
    count_in_words,
    evidence_of,
    launched_by_optimizer,
    ms_per_step,
)
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange("PyTorch", "model = $model.cuda()", "model = torch.compile($model.cuda())", usual=MODEL),
    CodeChange(
        "Lightning", "model = LitNet()", "model = LitNet()\nmodel.compile()   # torch.compile(LitNet()) stops at self.log"
    ),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., torch_compile=True)"),
)
# Code change around a recurrent layer, at which torch.compile stops.
AROUND = (
    CodeChange(
        "PyTorch", "model = $model.cuda()", "model = $model.cuda()\nmodel.encoder.compile()\nmodel.head.compile()", usual=MODEL
    ),
)
# The user's own code captures the graph; the model must be compiled before that.
CAPTURED = (
    CodeChange(
        "PyTorch", "model = $model.cuda()", "model = torch.compile($model.cuda())   # before the graph is captured", usual=MODEL
    ),
)
PREDICTED = "Predicted with one kernel for each group of neighbouring kernels that takes as long as the longest kernel of the group. The optimizer does not change."
LOSS_TOO = "This includes the loss: compile it too if the loop computes it outside of the model."
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
    of_layer = work.loc[work["operator"].str.match(OF_A_LAYER, na=False), "gpu_op_id"].to_numpy(np.int64)
    averaged = averaging(context)["gpu_op_id"].to_numpy(np.int64)
    left_out = np.concatenate([launched_by_optimizer(context.recording, context.rank.device), averaged, of_layer])
    joined = between_products(work, left_out, captured)
    if not joined:
        return
    rows, dur_ns = work.iloc[np.concatenate(joined)], work["dur_ns"].to_numpy()
    took_ms = ms_per_step(rows, steps)
    shorter_ns = float(rows["dur_ns"].sum()) - sum(fused_ns(dur_ns[part], shortest_ns) for part in joined)
    saved = min(shorter_ns / 1e6 / steps, took_ms)
    loading = loads_code(context)
    edits = [] if loading else compiling_edits(work, joined, shortest_ns)
    gain_ms = context.step.gain_ms(edits)
    with_loss = rows["operator"].isin(LOSS).any()
    if context.is_trifle(gain_ms if gain_ms is not None else saved):
        return
    yield Evidence(
        Advice(
            f"Elementwise work is not fused: {count_in_words(rows, steps)}, {in_words(took_ms)} of each step",
            BEFORE_CAPTURE if captured.any() else _action(layer),
            note=AFTER_LOADING if loading else f"{PREDICTED} {LOSS_TOO}" if with_loss else PREDICTED,
            risk="Compilation takes minutes at the start and again when shapes change.",
            changes=CAPTURED if captured.any() else AROUND if layer else CHANGES,
        ),
        lost_ms=saved,
        cost_ms=saved,
        threshold_for="gain",
        edits=edits,
        is_choice=True,
        rows=evidence_of(rows, steps, ("operator",)),
    )


def _action(layer: str | None) -> Action:
    joined = "neighbouring elementwise kernels become a few kernels."
    if layer is None:
        return Action("Compile", "the model", f": {joined}")
    return Action(
        "Compile",
        f"the parts before and after {layer}",
        f", each by itself: torch.compile stops at {layer}. {joined[0].upper()}{joined[1:]}",
    )


RULE = Rule(
    "elementwise-chains",
    measure,
    reads=OF_TRACE,
    explains=Explains(topics=frozenset({"choice"}), sets=("compile",)),
    requires=("steps", "torch.compile"),
    threshold=CHOICE,
    same_work_as="smaller findings",
)
