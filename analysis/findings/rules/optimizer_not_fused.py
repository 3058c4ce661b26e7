"""The optimizer launches kernels tensor by tensor.

What it checks
    How many elementwise kernels per step are launched inside ``Optimizer.step`` of an optimizer of PyTorch and belong to no
    fused or foreach operator. Products, copies and communication never count: fusing removes none of them. If ``step`` gets
    a closure, only kernels after its backward pass count.
Why it costs time
    A single-tensor optimizer launches a dozen kernels for every parameter, and reads and writes every state several times.
What to do
    Use ``fused=True``: one pass over parameters, gradients and states in a few kernels.
When it is wrong
    The optimizer is a class of your own with the name of one of PyTorch's. Optimizers that PyTorch does not have, such as
    Muon variants, have no fused form and are not checked. Parameters on several devices are grouped by device.
References
    https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.actions import FUSED_ON_GPU, OPTIMIZER, WITH_FOREACH, optimizers, steps_of, with_optimizer
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import fused_optimizer
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.chains import after_updates, graph_kernels
from sawtooth.analysis.findings.recorded.counted_operations import (
    count_in_words,
    evidence_of,
    launched_by_optimizer,
    ms_per_step,
    numel,
)
from sawtooth.analysis.knowledge.kernel_time import estimate
from sawtooth.analysis.knowledge.kernel_work import optimizer_work
from sawtooth.analysis.replay.edges import TIMES_OFF
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

# A fused optimizer launches less than ten kernels per step, a foreach one some tens, a single-tensor one a dozen per
# parameter.
MANY_KERNELS = 50
# Share of the memory traffic that remains: fused Adam moves 7 values per parameter, single-tensor Adam about 26.
FUSED_SHARE = 0.27
REMAINING_KERNELS_PER_STEP = 2  # Kernels that a fused optimizer still launches.
# The run's host time for these launches ÷ the replay's, which removes too much of the profiler's cost here. The smaller of the
# estimates from two pairs of recordings (1.55 and 1.67, docs/evidence/advice.md); they are uncertain.
HOST_TIMES = 1.55
ALL_AT_ONCE = Action("Let", "the optimizer update all tensors at once", " (foreach=True).")
FUSED = r"_fused_|_foreach_|multi_tensor"
# Matches the kernels of a foreach update, but not the norms of gradient clipping.
FOREACH = r"multi_tensor_apply_kernel<(?!.*(?:Fused|LpNorm))"
# Categories of kernels that an optimizer's fused form does not replace.
NEVER_FUSED = ("optimizer", "gemm", "attention", "conv", "communication")

CHANGES = (
    CodeChange(
        "PyTorch",
        "torch.optim.$optimizer(model.parameters(), $options, foreach=False)",
        "torch.optim.$optimizer(model.parameters(), $options, $fused)",
        usual=OPTIMIZER,
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


CAPTURED = (
    CodeChange(
        "PyTorch",
        "opt = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=True)",
        "opt = torch.optim.AdamW(model.parameters(), lr=3e-4, capturable=True, fused=True)   # before the graph is captured",
    ),
)


def _captured_evidence(context: RuleContext) -> Evidence | None:
    """Return the evidence on an optimizer in a CUDA graph that launches kernels for single numbers.

    A capturable foreach optimizer keeps a step count for each parameter on the GPU, and works on each count with separate kernels.
    """
    work, steps = context.work, context.work_steps
    captured = graph_kernels(context)
    single = work.iloc[after_updates(work, work["gpu_op_id"].isin(captured).to_numpy(bool))]
    if len(single) < MANY_KERNELS * steps:
        return None
    cost = ms_per_step(single, steps)
    updates = work[work["gpu_op_id"].isin(captured) & work["kernel"].str.contains(FOREACH, na=False)]
    update = fused_optimizer(tuple(updates["gpu_op_id"].tolist()), "Adam", context.rank.gpu) if len(updates) else None
    return Evidence(
        Advice(
            f"The optimizer in the CUDA graph launches {count_in_words(single, steps)} per step for the step counts of single tensors: {in_words(cost)}",
            Action("Use", "the fused optimizer", ", with both fused=True and capturable=True, before the graph is captured."),
            note=f"Predicted without these kernels{', and with Adam’s fused kernels instead of the foreach updates' if update else ''}.",
            risk="The fused update rounds differently in the last bits.",
            changes=CAPTURED,
        ),
        lost_ms=cost,
        cost_ms=cost,
        edits=[WithoutOps(tuple(single["gpu_op_id"].tolist())), *([update] if update else [])],
        rest=f"part of the foreach updates, which take {in_words(ms_per_step(updates, steps))}",
        rows=evidence_of(single, steps, ("kernel",)),
    )


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if single-tensor kernels of the optimizer cost a relevant share of the step.

    Their launches count as well.
    """
    steps = context.work_steps
    names = [name for name in optimizers(context.recording) if name in WITH_FOREACH]
    if not optimizers(context.recording) and (captured := _captured_evidence(context)) is not None:
        yield captured
    if not names:
        return  # PyTorch has no fused or foreach form of other optimizers.
    inside = launched_by_optimizer(context.recording, context.rank.device, steps_of(names))
    work = context.work
    single = work[
        work["gpu_op_id"].isin(inside)
        & ~work["operator"].fillna("").str.contains(FUSED)
        & (work["kind"] == "kernel")
        & ~work["category"].isin(NEVER_FUSED)
    ]
    if len(single) < MANY_KERNELS * steps:
        return
    edits = _fusing_edits(single, context)
    name = names[0] if len(names) == 1 else None
    predicted = context.predict_ms(edits)
    if predicted is not None and context.step_ms and context.is_trifle(context.step_ms - predicted):
        return
    yield Evidence(
        Advice(
            f"The optimizer launches {count_in_words(single, steps)} per step, one parameter tensor at a time",
            Action("Use", "the fused optimizer") if name is None or name in FUSED_ON_GPU else ALL_AT_ONCE,
            note="Predicted with two kernels that move each value once.",
            risk="The fused update rounds differently in the last bits.",
            changes=with_optimizer(CHANGES, name),
        ),
        lost_ms=max(context.step_ms - predicted, 0.0)
        if predicted is not None and context.step_ms
        else ms_per_step(single, steps),
        edits=edits,
        confidence="high",
        rows=evidence_of(single, steps, ("operator",)),
        threshold_for="gain",
    )


def _fusing_edits(single: pd.DataFrame, context: RuleContext) -> list[Edit]:
    """Return the edits that replace each step's ``single`` kernels by a few fused kernels.

    Adam's new kernels take the kernel model's time for this number of values on the run's GPU. The number comes from the kernels
    that divide a parameter's update. For other optimizers, or GPUs that are not in the hardware table, the recorded time is
    scaled by the share of memory traffic.
    """
    kept_ids: list[int] = []
    gpu = context.rank.gpu
    timed: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    for _, part in single.groupby("step"):
        updates = part[part["operator"] == "aten::addcdiv_"]
        values = sum(numel(dims[0]) for dims in updates["dims"] if dims)
        time = estimate(optimizer_work("Adam", "fused", values), gpu) if gpu is not None and values else None
        recorded_ms = float(part["dur_ns"].sum()) / 1e6
        kept_ids += part["gpu_op_id"].head(REMAINING_KERNELS_PER_STEP).tolist()
        for edge, share in (("ms", 1.0), ("low", TIMES_OFF[0]), ("high", TIMES_OFF[1])):
            whole_ms = getattr(time, edge) if time is not None else recorded_ms * FUSED_SHARE * share
            timed[edge] += [max(int(whole_ms * 1e6 / REMAINING_KERNELS_PER_STEP), 1)] * min(
                REMAINING_KERNELS_PER_STEP, len(part)
            )
    removed = single.loc[~single["gpu_op_id"].isin(kept_ids), "gpu_op_id"].tolist()
    excess_ms = (HOST_TIMES - 1) * _replayed_host_ms(removed, context)
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
    reads=OF_TRACE,
    explains=Explains(("launch_bound",), called="an optimizer that launches tensor by tensor", sets=("optimizer",)),
    requires=("steps",),
    threshold=FEW_LINES,
)
