"""The optimizer uses foreach kernels, although it could be fused.

What it checks
    ``_foreach_`` kernels inside ``Optimizer.step``, without ``_fused_`` kernels.
Why it costs time
    A foreach optimizer moves every state through memory several times. Each of its operators also takes the host time, and Adam's
    computes the bias correction of every tensor on the CPU.
What to do
    Use ``fused=True``, which moves every state only once.
When it is wrong
    The optimizer has no fused form. Only Adam, AdamW, SGD and Adagrad have one.
References
    https://docs.pytorch.org/docs/stable/optim.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.actions import FUSED_ON_GPU, OPTIMIZER, optimizers, step_annotations, with_optimizer
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import fused_optimizer_edit
from sawtooth.analysis.findings.model import REST_OF_LAUNCHES, TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import launching_calls, operators
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, launched_by_optimizer, ms_per_step
from sawtooth.analysis.replay.edits import Edit, ScaledOps, TimedOps, WithoutCalls, WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "torch.optim.$optimizer(model.parameters(), $options)",
        "torch.optim.$optimizer(model.parameters(), $options, $fused)",
        slot_defaults=OPTIMIZER,
    ),
    CodeChange(
        "Transformers",
        'TrainingArguments(optim="adamw_torch")',
        'TrainingArguments(optim="adamw_torch_fused")   # the default since Transformers 4.46',
    ),
)


# Divides the mean gradient by the root of the mean square, and updates the parameters.
LAST_OF_ADAM = "aten::_foreach_addcdiv_"


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if foreach kernels of the optimizer, or their launches, cost a relevant share."""
    steps = context.work_steps
    names = [name for name in optimizers(context.recording) if name in FUSED_ON_GPU]
    if not names:
        return  # Foreach is the best form of other optimizers.
    own_ops = launched_by_optimizer(context.recording, context.rank.device, step_annotations(names))
    work = context.work
    updates = work[work["gpu_op_id"].isin(own_ops)]
    operator_names = updates["operator"].fillna("")
    foreach = updates[operator_names.str.contains("_foreach_")]
    if operator_names.str.contains("_fused_").any() or foreach.empty:
        return
    cost_ms, name = ms_per_step(foreach, steps), names[0]
    scaled = fused_optimizer_edit(tuple(foreach["gpu_op_id"].tolist()), name, context.rank.gpu)
    edits = _fusing_edits(context, foreach, names, scaled) if scaled is not None else []
    predicted_ms = context.predict_ms(edits) if edits else None
    gain_ms = context.step_ms - predicted_ms if predicted_ms is not None and context.step_ms else 0.0
    if context.is_negligible(max(cost_ms, gain_ms)):
        return
    yield Evidence(
        Advice(
            f"The optimizer moves its states several times through memory: {in_words(cost_ms)} of each step in foreach kernels",
            Action("Use", "the fused optimizer", ": one pass over parameters, gradients and states."),
            note="Predicted with the optimizer's fused kernels, which move less than half as many bytes, and without the host's time for the other launches."
            if edits
            else "Not predicted: the fused kernels of this optimizer were not measured.",
            risk="The fused update rounds differently in the last bits.",
            changes=with_optimizer(CHANGES, name),
        ),
        lost_ms=max(cost_ms, gain_ms),
        cost_ms=cost_ms,
        threshold_for="larger",
        edits=edits,
        severity=None if edits else "info",
        rest=REST_OF_LAUNCHES,
        rows=evidence_of(foreach, steps, ("operator",)),
    )


def _fusing_edits(context: RuleContext, foreach: pd.DataFrame, optimizer_names: Sequence[str], scaled: ScaledOps) -> list[Edit]:
    """Return the edits that run each update of a group of parameters as one fused operator.

    The launches of the group's first operators stay, because Python collects the tensors before them in both forms. They take the
    fused kernels' time. The other launches disappear, and so does the host's time before them: bias corrections, lists, and
    arithmetic on step counts, which the fused form keeps on the GPU.
    """
    remaining_work: list[pd.DataFrame] = []
    edges: tuple[list[int], list[int], list[int]] = ([], [], [])
    first_ids: list[int] = []
    for update in _updates_of_groups(context, foreach, optimizer_names):
        remaining = update[update["cpu_op_id"].isin(update["cpu_op_id"].unique()[: _fused_operators(update)])]
        remaining_work.append(remaining)
        first_ids.append(int(remaining["gpu_op_id"].iloc[0]))
        recorded_ns = float(update["dur_ns"].sum())
        for times, factor in zip(edges, (scaled.factor, scaled.low, scaled.high), strict=True):
            times += [max(round(recorded_ns * (factor or scaled.factor) / len(remaining)), 1)] * len(remaining)
    kept_ids = [int(op) for rows in remaining_work for op in rows["gpu_op_id"]]
    kept_calls = launching_calls(context, kept_ids)
    removed_calls = set(launching_calls(context, foreach["gpu_op_id"].tolist())) - set(kept_calls)
    return [
        TimedOps(tuple(kept_ids), *map(tuple, edges)),
        WithoutHostCause("host_compute", calls=launching_calls(context, first_ids)),
        WithoutCalls(tuple(sorted(removed_calls))),
    ]


def _updates_of_groups(context: RuleContext, foreach: pd.DataFrame, optimizer_names: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the rows of each group of parameters in each call of ``Optimizer.step``, in order of launch.

    One group runs each operator once, or the same sequence of operators is repeated for each group.
    """
    own_ids = set(foreach["gpu_op_id"].tolist())
    for call in operators(context, step_annotations(optimizer_names)).ids:
        rows = context.work.iloc[np.sort(context.launches.launched_during(np.array([call], np.int64)))]
        rows = rows[rows["gpu_op_id"].isin(own_ids)].sort_values(["cpu_op_id", "gpu_op_id"])
        if rows.empty:  # This call updated nothing in the counted steps.
            continue
        calls = rows.drop_duplicates("cpu_op_id")
        groups = _group_numbers(calls["operator"].tolist())
        for _, part in rows.groupby(rows["cpu_op_id"].map(dict(zip(calls["cpu_op_id"], groups, strict=True)))):
            yield part


def _group_numbers(operator_names: Sequence[str]) -> list[int]:
    """Return the number of the group of parameters of each operator call.

    Adam's last operator of a group is ``_foreach_addcdiv_``. Other updates repeat the sequence of the first group.
    """
    if LAST_OF_ADAM in operator_names:
        ends = np.cumsum([name == LAST_OF_ADAM for name in operator_names])
        return [int(end) - (name == LAST_OF_ADAM) for end, name in zip(ends, operator_names, strict=True)]
    names = list(operator_names)
    length = next(n for n in range(1, len(names) + 1) if all(name == names[i % n] for i, name in enumerate(names)))
    return [place // length for place in range(len(names))]


def _fused_operators(update: pd.DataFrame) -> int:
    """Return the number of operators of the fused form: Adam's also counts the steps on the GPU."""
    return 2 if LAST_OF_ADAM in set(update["operator"]) else 1


RULE = Rule(
    "optimizer-foreach",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(sets=("optimizer",)),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
