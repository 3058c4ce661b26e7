"""Elementwise work is not fused.

What it checks
    Kernels of the forward and backward pass that only move data (elementwise operators, norms, reductions, copies) and follow one another between
    two matrix products, in a model that is neither compiled nor replayed as a CUDA graph.
Why it costs time
    Each kernel reads and writes all of it from memory; compiled, the same work reads its inputs once and writes its result once.
What to do
    ``torch.compile(model)``: inductor makes a few Triton kernels of what lies between two products. On two models of ours they took 0.9 and 1.2 times
    as long as the longest kernels that they replaced.
When it is wrong
    torch.compile stops at nn.LSTM, nn.GRU and nn.RNN, whose work is cuDNN's: only what lies around them is counted. Shapes that change every step recompile: mark them dynamic. The first steps take minutes.
References
    https://docs.pytorch.org/docs/stable/generated/torch.compile.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.queries.chains import between_products, compiled
from sawtooth.analysis.findings.queries.recurrent import OF_A_LAYER, recurrent_layer
from sawtooth.analysis.findings.rule import Rule, RuleContext, severity_of
from sawtooth.analysis.findings.work import count_in_words, evidence_of, launched_by_optimizer, ms_per_step
from sawtooth.analysis.run.model import CodeChange, Explains, Finding
from sawtooth.analysis.units import in_words

WORTH_NAMING = 0.10  # of the step, at least: compiling costs minutes and care

CHANGES = (
    CodeChange("PyTorch", "model = Net().cuda()", "model = torch.compile(Net().cuda())"),
    CodeChange("Lightning", "model = LitNet()", "model = torch.compile(LitNet())"),
    CodeChange("Transformers", "TrainingArguments(...)", "TrainingArguments(..., torch_compile=True)"),
)
# Around a recurrent layer, at which torch.compile stops.
AROUND = (CodeChange("PyTorch", "model = Net().cuda()", "model = Net().cuda()\nmodel.encoder.compile()\nmodel.head.compile()"),)
AROUND_FIX = "Compile the parts before and behind {layer}, each by itself: torch.compile stops at {layer}. What lies between two products becomes a few kernels."


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when compiling the model would save more than WORTH_NAMING of the step."""
    steps = context.work_steps
    work = context.work
    if work["kernel"].str.startswith("triton_").any() or context.rank.facts.graph_kernels_in_counted_steps:
        return  # compiled already, or captured, and no longer seen operator by operator
    layer = recurrent_layer(context)
    of_layer = work.loc[work["operator"].str.match(OF_A_LAYER, na=False), "gpu_op_id"].to_numpy(np.int64)
    left_out = np.concatenate([launched_by_optimizer(context.recording, context.rank.device), of_layer])
    joined = between_products(work, left_out)
    if not joined:
        return
    rows, dur_ns = work.iloc[np.concatenate(joined)], work["dur_ns"].to_numpy()
    saved = ms_per_step(rows, steps) - sum(dur_ns[part].max() for part in joined) / 1e6 / steps
    edits = compiled(work, joined)
    between = context.predict_range_ms(edits)
    least = context.step_ms - between[1] if between is not None and context.step_ms else saved
    if context.share(least) < WORTH_NAMING:
        return
    predicted = context.predict_ms(edits)
    gain = context.step_ms - predicted if predicted is not None and context.step_ms else saved
    yield context.finding(
        RULE.slug,
        f"{count_in_words(rows, steps)} a step only move data from one product to the next: {in_words(ms_per_step(rows, steps))} of each step",
        AROUND_FIX.format(layer=layer) if layer else "Compile the model: what lies between two products becomes a few kernels.",
        ceiling_ms=saved,
        edits=edits,
        severity="warning" if severity_of(context.share(gain)) == "critical" else "info",  # eager is a choice, and no fault
        note="What follows a product, up to the next, as long as its longest kernel; what the optimizer launches stays.",
        risk="Compilation takes minutes at the start and again when shapes change.",
        changes=AROUND if layer else CHANGES,
        evidence=evidence_of(rows, steps, ("operator",)),
    )


RULE = Rule(
    "elementwise-chains", ("steps", "shapes"), check, Explains(chosen=True, sets=("compile",)), reads=OF_TRACE | {"shapes"}
)
