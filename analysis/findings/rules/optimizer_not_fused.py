"""The optimizer launches kernels tensor by tensor.

What it checks
    The number of elementwise kernels per step that ``Optimizer.step`` of one of PyTorch's optimizers launches outside fused and
    foreach operators. Products, copies and communication do not count, because a fused optimizer needs them as well. If
    ``step`` gets a closure, only kernels after the closure's backward pass count.
Why it costs time
    A single-tensor optimizer launches a dozen kernels for every parameter, and reads and writes every state several times.
What to do
    Use ``fused=True``: one pass over parameters, gradients and states in a few kernels.
When it is wrong
    The optimizer is a class of your own with the name of one of PyTorch's. Optimizers that PyTorch does not have, such as
    Muon variants, have no fused form and are not checked.
References
    https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.actions import (
    FUSED_ON_GPU,
    OPTIMIZER,
    WITH_FOREACH,
    optimizers,
    step_annotations,
    with_optimizer,
)
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import fused_optimizer_edit
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.chains import captured_after_updates, graph_kernels
from sawtooth.analysis.findings.recorded.counted_operations import (
    count_in_words,
    evidence_of,
    launched_by_optimizer,
    ms_per_step,
    numel,
)
from sawtooth.analysis.knowledge.kernel_time import estimate
from sawtooth.analysis.knowledge.kernel_work import optimizer_work
from sawtooth.analysis.replay.edges import KERNEL_TIME_ERROR_FACTORS
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

# Per step. A fused optimizer launches less than ten kernels, a foreach optimizer some tens, and a single-tensor optimizer a dozen
# for each parameter.
MIN_KERNELS = 50
# Share of the memory traffic that remains. Fused Adam moves 7 values per parameter, single-tensor Adam about 26.
FUSED_SHARE = 0.27
REMAINING_KERNELS = 2  # Kernels of a fused optimizer per step.
# The run's host time for an optimizer's launches ÷ the replay's. The replay subtracts too large a profiler cost from these
# launches. Two pairs of recordings gave uncertain estimates (1.55 and 1.67, docs/evidence/advice.md); this is the smaller
# one.
HOST_TIME_FACTOR = 1.55
ALL_AT_ONCE = Action("Let", "the optimizer update all tensors at once", " (foreach=True).")
FUSED_OPERATORS = r"_fused_|_foreach_|multi_tensor"
# Matches the kernels of a foreach update, but not the norms of gradient clipping.
FOREACH_KERNELS = r"multi_tensor_apply_kernel<(?!.*(?:Fused|LpNorm))"
# Categories of kernels that an optimizer's fused form does not replace.
NEVER_FUSED = ("optimizer", "gemm", "attention", "conv", "communication")

CHANGES = (
    CodeChange(
        "PyTorch",
        "torch.optim.$optimizer(model.parameters(), $options, foreach=False)",
        "torch.optim.$optimizer(model.parameters(), $options, $fused)",
        slot_defaults=OPTIMIZER,
    ),
    CodeChange(
        "Lightning",
        "return torch.optim.AdamW(self.parameters(), foreach=False)",
        "return torch.optim.AdamW(self.parameters(), fused=True)",
    ),
    CodeChange(
        "Transformers",
        'TrainingArguments(optim="adamw_torch")',
        'TrainingArguments(optim="adamw_torch_fused")   # the default since Transformers 4.46',
    ),
)
CAPTURED_CHANGES = (
    CodeChange(
        "PyTorch",
        "opt = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=True)",
        "opt = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=True, fused=True)   # before the graph is captured",
    ),
)


def _captured_evidence(context: RuleContext) -> Evidence | None:
    """Return the evidence on a capturable foreach optimizer in a CUDA graph.

    Such an optimizer keeps a step count for each parameter on the GPU, and updates each count with separate kernels.
    """
    work, steps = context.work, context.work_steps
    captured_ops = graph_kernels(context)
    count_kernels = work.iloc[captured_after_updates(work, work["gpu_op_id"].isin(captured_ops).to_numpy(bool))]
    if len(count_kernels) < MIN_KERNELS * steps:
        return None
    cost_ms = ms_per_step(count_kernels, steps)
    foreach_updates = work[work["gpu_op_id"].isin(captured_ops) & work["kernel"].str.contains(FOREACH_KERNELS, na=False)]
    fused_updates = (
        fused_optimizer_edit(tuple(foreach_updates["gpu_op_id"].tolist()), "Adam", context.rank.gpu)
        if len(foreach_updates)
        else None
    )
    return Evidence(
        Advice(
            f"The optimizer in the CUDA graph launches {count_in_words(count_kernels, steps)} per step for the step counts of single tensors: {in_words(cost_ms)}",
            Action("Use", "the fused optimizer", ", with both fused=True and capturable=True, before the graph is captured."),
            note=f"Predicted without these kernels{', and with Adam’s fused kernels instead of the foreach updates' if fused_updates else ''}.",
            risk="The fused update rounds differently in the last bits.",
            changes=CAPTURED_CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=[WithoutOps(tuple(count_kernels["gpu_op_id"].tolist())), *([fused_updates] if fused_updates else [])],
        rest=f"part of the foreach updates, which take {in_words(ms_per_step(foreach_updates, steps))}",
        rows=evidence_of(count_kernels, steps, ("kernel",)),
    )


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if the optimizer's single-tensor kernels and their launches cost a relevant share."""
    steps = context.work_steps
    names = [name for name in optimizers(context.recording) if name in WITH_FOREACH]
    if not optimizers(context.recording) and (captured := _captured_evidence(context)) is not None:
        yield captured
    if not names:
        return  # PyTorch has no fused or foreach form of other optimizers.
    optimizer_ops = launched_by_optimizer(context.recording, context.rank.device, step_annotations(names))
    work = context.work
    single_tensor = work[
        work["gpu_op_id"].isin(optimizer_ops)
        & ~work["operator"].fillna("").str.contains(FUSED_OPERATORS)
        & (work["kind"] == "kernel")
        & ~work["category"].isin(NEVER_FUSED)
    ]
    if len(single_tensor) < MIN_KERNELS * steps:
        return
    edits = _fusing_edits(single_tensor, context)
    name = names[0] if len(names) == 1 else None
    predicted_ms = context.predict_ms(edits)
    if predicted_ms is not None and context.step_ms and context.is_negligible(context.step_ms - predicted_ms):
        return
    yield Evidence(
        Advice(
            f"The optimizer launches {count_in_words(single_tensor, steps)} per step, one parameter tensor at a time",
            Action("Use", "the fused optimizer") if name is None or name in FUSED_ON_GPU else ALL_AT_ONCE,
            note="Predicted with two kernels that move each value once.",
            risk="The fused update rounds differently in the last bits.",
            changes=with_optimizer(CHANGES, name),
        ),
        lost_ms=max(context.step_ms - predicted_ms, 0.0)
        if predicted_ms is not None and context.step_ms
        else ms_per_step(single_tensor, steps),
        edits=edits,
        confidence="high",
        rows=evidence_of(single_tensor, steps, ("operator",)),
        threshold_for="gain",
    )


def _fusing_edits(single: pd.DataFrame, context: RuleContext) -> list[Edit]:
    """Return the edits that replace each step's ``single`` kernels by a few fused kernels.

    Adam's new kernels take the kernel model's time for the number of updated values. This number comes from the sizes of the divisions
    in the update. For other optimizers, or GPUs that are not in the hardware table, FUSED_SHARE scales the recorded time.
    """
    kept_ids: list[int] = []
    gpu = context.rank.gpu
    timed: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    for _, part in single.groupby("step"):
        divisions = part[part["operator"] == "aten::addcdiv_"]
        values = sum(numel(dims[0]) for dims in divisions["dims"] if dims)
        time = estimate(optimizer_work("Adam", "fused", values), gpu) if gpu is not None and values else None
        recorded_ms = float(part["dur_ns"].sum()) / 1e6
        kept_ids += part["gpu_op_id"].head(REMAINING_KERNELS).tolist()
        for edge, share in (("ms", 1.0), ("low", KERNEL_TIME_ERROR_FACTORS[0]), ("high", KERNEL_TIME_ERROR_FACTORS[1])):
            whole_ms = getattr(time, edge) if time is not None else recorded_ms * FUSED_SHARE * share
            kernel_ns = max(int(whole_ms * 1e6 / REMAINING_KERNELS), 1)
            timed[edge] += [kernel_ns] * min(REMAINING_KERNELS, len(part))
    removed = single.loc[~single["gpu_op_id"].isin(kept_ids), "gpu_op_id"].tolist()
    excess_ms = (HOST_TIME_FACTOR - 1) * _replayed_host_ms(removed, context)
    return [
        TimedOps(tuple(kept_ids), *(tuple(times) for times in timed.values())),
        WithoutOps(tuple(removed), excess_ms=excess_ms),
    ]


def _replayed_host_ms(ops: list[int], context: RuleContext) -> float:
    """Return the replay's host time of the launches of ``ops`` in ms per step; 0 without a replay."""
    if context.whatif is None:
        return 0.0
    host, launched = context.whatif.problem.host, context.whatif.problem.ops
    nodes = np.unique(launched.node[np.isin(launched.op, np.array(ops, np.int64)) & (launched.node >= 0)])
    return float((host.gap + host.own)[nodes].sum()) / 1e6 / context.work_steps


RULE = Rule(
    "optimizer-not-fused",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("launch_bound",), called="an optimizer that launches tensor by tensor", sets=("optimizer",)),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)
