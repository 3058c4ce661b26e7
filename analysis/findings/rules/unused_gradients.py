"""Gradients are computed for parameters that no optimizer trains.

What it checks
    Whether, in every step, a backward pass ends with parameters whose gradient is added to that of the step before, while
    other gradients start again. An optimizer's ``zero_grad`` clears the gradients that it trains, so no optimizer trains
    these parameters. All work after the last cleared gradient serves only them.
Why it costs time
    Autograd continues through every earlier layer: a backward pass takes about twice as long as the forward pass. It also
    keeps activations in memory.
What to do
    Run parts that are not trained (a teacher, a frozen trunk) under ``torch.no_grad()``, or call ``requires_grad_(False)`` on
    their parameters.
When it is wrong
    A second optimizer trains the parameters, but steps less often than the profile is long. Or gradients are accumulated over
    many steps on purpose. The rule does not see untrained parameters before the last trained one, nor a model whose
    ``zero_grad`` clears all gradients.
References
    https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.run.model import Action, CodeChange, Explains

ACCUMULATES = r"^torch::autograd::AccumulateGrad$"
# End of the last step in use. A long recording has millions of later operators.
_UNTIL = "(SELECT max(host_end_ns) FROM steps WHERE device = $device AND step <= $last)"
# Each row is one gradient of a backward pass. ``added`` says whether it is added to an existing gradient or written as a new
# one.
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
    """Yield a finding if the end of every backward pass serves only gradients that are never cleared.

    This part of the pass must take a relevant share of the step.
    """
    names, adding = context.recording.named(ACCUMULATES), context.recording.named(r"^aten::add_$")
    if not names or not adding or not len(context.work):
        return
    steps = set(context.work["step"].tolist())
    until = {"device": context.rank.device, "last": max(steps)}
    gradients = context.recording.frame(_GRADIENTS, until | {"names": names, "adding": adding})
    if gradients["added"].all() or not gradients["added"].any():
        return
    launched = context.recording.frame(_LAUNCHED, until)
    tails = _tails(gradients, launched)
    # Steps that are not counted may also show that gradients are cleared.
    clearing = set(gradients.loc[~gradients["added"], "step"].tolist())
    if not steps | clearing <= set(tails["step"].tolist()):
        return
    thread, start, end = (tails[name].to_numpy() for name in ("thread_id", "start_ns", "end_ns"))
    inside = context.launches.between(thread, start, end)
    unused, every = round(tails["unused"].mean()), round(tails["every"].mean())
    yield from kernel_evidence(
        context,
        context.work.iloc[np.sort(inside)],
        Advice(
            f"{unused} of {every} parameters get gradients that are never cleared, as if no optimizer trained them: {{cost}} of each step",
            Action(
                "Turn",
                "gradients off for parameters that are not trained",
                ": torch.no_grad() around their module, or requires_grad_(False) on them.",
            ),
            note="Predicted without the end of the backward pass, which only serves these gradients. The forward pass then also saves less, which is not included.",
            risk="None if no optimizer has these parameters. An optimizer that trains them but steps rarely does need their gradients.",
            changes=CHANGES,
        ),
    )


def _tails(gradients: pd.DataFrame, launched: pd.DataFrame) -> pd.DataFrame:
    """Return the ends of backward passes that serve only gradients which are never cleared.

    Columns: step, thread_id, start_ns, end_ns, and ``unused`` of ``every`` gradient. A pass ends when another thread launches
    something: the next forward pass, or the first gradient of another backward pass. Only passes like the step's first count,
    because later passes add to its gradients in any case.
    """
    tails = []
    for thread, of_thread in gradients.groupby("thread_id"):
        other_starts = launched.loc[launched["thread_id"] != thread, "start_ns"].to_numpy()
        if not len(other_starts):  # The same thread launches the forward pass, so the end of the backward pass is not visible.
            continue
        for step, of_step in of_thread.groupby("step"):
            first: tuple[int, int] | None = None
            for _, part in of_step.groupby(np.searchsorted(other_starts, of_step["start_ns"].to_numpy())):
                kind = len(part), int(part["added"].sum())
                first = first or kind
                cleared = part.loc[~part["added"], "end_ns"]
                if kind != first or cleared.empty:
                    continue
                unused = part[part["start_ns"] >= cleared.max()]
                if len(unused):
                    tails.append((step, thread, cleared.max(), unused["end_ns"].max(), len(unused), len(part)))
    return pd.DataFrame(tails, columns=["step", "thread_id", "start_ns", "end_ns", "unused", "every"])


RULE = Rule(
    "unused-gradients",
    measure,
    reads=OF_TRACE,
    explains=Explains(topics=frozenset({"fewer_flops"})),
    requires=("steps",),
    threshold=ONE_LINE,
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first: it is the smaller change, and a CUDA graph would contain unnecessary work.",
        ),
    ),
)
