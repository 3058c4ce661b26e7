"""Gradients are computed for parameters that no optimizer trains.

What it checks
    Whether a backward pass of every step ends with gradients that are added to those of the step before, while other gradients
    start again. An optimizer's ``zero_grad`` clears the gradients of its parameters. So no optimizer trains a parameter whose
    gradient is never cleared. All work after the last cleared gradient serves only such parameters.
Why it costs time
    Autograd computes gradients through layers that nothing trains. The backward pass of a layer takes about twice as long as its
    forward pass, and needs stored activations.
What to do
    Run parts that are not trained (a teacher, a frozen trunk) under ``torch.no_grad()``, or call ``requires_grad_(False)`` on
    their parameters.
When it is wrong
    A second optimizer trains the parameters, but makes no step in the profile. Or the loop accumulates gradients over many steps
    on purpose. If the model's own ``zero_grad`` clears all gradients, there is no finding.
References
    https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.run.model import Action, CodeChange, Explains

GRADIENT_NODE = r"^torch::autograd::AccumulateGrad$"
# End of the last step of ``RuleContext.work``. A long recording has millions of later operators.
_UNTIL = "(SELECT max(host_end_ns) FROM steps WHERE device = $device AND step <= $last)"
# Each row is one gradient of a backward pass. ``added`` is True if it is added to an existing gradient.
_GRADIENTS = f"""
SELECT a.thread_id, a.start_ns, a.start_ns + a.dur_ns AS end_ns, t.step, a.cpu_op_id IN (
    SELECT parent_id FROM cpu_ops WHERE list_contains($adding, name_id) AND start_ns < {_UNTIL} AND parent_id IS NOT NULL) AS added
FROM cpu_ops a JOIN steps t ON t.device = $device AND t.step <= $last AND a.start_ns >= t.host_start_ns AND a.start_ns < t.host_end_ns
WHERE list_contains($names, a.name_id) AND a.start_ns < {_UNTIL} ORDER BY a.thread_id, a.start_ns"""
_LAUNCHED = f"""
SELECT c.thread_id, c.start_ns FROM gpu_ops g JOIN runtime_calls c USING (call_id)
WHERE g.device = $device AND c.start_ns < {_UNTIL} ORDER BY c.start_ns"""

CHANGES = (
    CodeChange(
        "PyTorch",
        "target = teacher(x)",
        "with torch.no_grad():   # a teacher\n    target = teacher(x)\nmodel.trunk.requires_grad_(False)   # or a trunk that stays as it is, once",
    ),
    CodeChange("Lightning", "self.trunk = resnet50()", "self.trunk = resnet50()\nself.trunk.requires_grad_(False)   # or self.trunk.freeze() of a LightningModule"),
)  # fmt: skip


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if a long end of each backward pass serves only gradients that are never cleared."""
    names, adding = context.recording.named(GRADIENT_NODE), context.recording.named(r"^aten::add_$")
    if not names or not adding or not len(context.work):
        return
    steps = set(context.work["step"].tolist())
    parameters = {"device": context.rank.device, "last": max(steps)}
    gradients = context.recording.frame(_GRADIENTS, parameters | {"names": names, "adding": adding})
    if gradients["added"].all() or not gradients["added"].any():
        return
    launched = context.recording.frame(_LAUNCHED, parameters)
    tails = _tails(gradients, launched)
    # Other steps that clear gradients must also have such an end.
    clearing_steps = set(gradients.loc[~gradients["added"], "step"].tolist())
    if not steps | clearing_steps <= set(tails["step"].tolist()):
        return
    thread, start, end = (tails[name].to_numpy() for name in ("thread_id", "start_ns", "end_ns"))
    inside = context.launches.between(thread, start, end)
    unused, gradients_per_pass = round(tails["unused"].mean()), round(tails["gradients"].mean())
    yield from kernel_evidence(
        context,
        context.work.iloc[np.sort(inside)],
        Advice(
            f"{unused} of {gradients_per_pass} parameters get gradients that are never cleared, as if no optimizer trained them: {{cost}} of each step",
            Action(
                "Turn",
                "gradients off for parameters that are not trained",
                ": torch.no_grad() around their module, or requires_grad_(False) on them.",
            ),
            note="Predicted without the end of the backward pass, which only serves these gradients. The forward pass then also stores fewer activations, which is not included.",
            risk="None if no optimizer has these parameters. An optimizer that trains them but rarely makes a step needs their gradients.",
            changes=CHANGES,
        ),
    )


def _tails(gradients: pd.DataFrame, launched: pd.DataFrame) -> pd.DataFrame:
    """Return the ends of backward passes that serve only gradients which are never cleared.

    Columns: step, thread_id, start_ns, end_ns, and the numbers of ``unused`` and of all ``gradients`` in the pass. A pass ends when
    another thread launches something. Only passes like the step's first count, because later passes always add to its gradients.
    """
    tails = []
    for thread, thread_gradients in gradients.groupby("thread_id"):
        other_starts = launched.loc[launched["thread_id"] != thread, "start_ns"].to_numpy()
        if not len(other_starts):  # The same thread launches the forward pass, so the end of the backward pass is not visible.
            continue
        for step, step_gradients in thread_gradients.groupby("step"):
            first_counts: tuple[int, int] | None = None
            pass_number = np.searchsorted(other_starts, step_gradients["start_ns"].to_numpy())
            for _, one_pass in step_gradients.groupby(pass_number):
                counts = len(one_pass), int(one_pass["added"].sum())
                first_counts = first_counts or counts
                cleared_ns = one_pass.loc[~one_pass["added"], "end_ns"]
                if counts != first_counts or cleared_ns.empty:
                    continue
                unused = one_pass[one_pass["start_ns"] >= cleared_ns.max()]
                if len(unused):
                    tails.append((step, thread, cleared_ns.max(), unused["end_ns"].max(), len(unused), len(one_pass)))
    return pd.DataFrame(tails, columns=["step", "thread_id", "start_ns", "end_ns", "unused", "gradients"])


RULE = Rule(
    "unused-gradients",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(topics=frozenset({"fewer_flops"})),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first, because it is the smaller change, and a CUDA graph would contain unnecessary work.",
        ),
    ),
)
