"""Gradients are computed for parameters that no optimizer trains.

What it checks
    Whether a backward pass ends with parameters whose gradient is added to the one of the step before, at every step, while others start anew: an
    optimizer's ``zero_grad`` clears what it trains, and nobody clears these. All after the last parameter that is cleared serves them alone.
Why it costs time
    Autograd goes on through every layer below: a backward pass takes about twice as long as the forward pass. Activations are kept for it as well.
What to do
    Run what is not trained (a teacher, a frozen trunk) under ``torch.no_grad()``, or call ``requires_grad_(False)`` on its parameters.
When it is wrong
    When a second optimizer trains them, but steps more rarely than the profile is long, or when gradients are gathered over many steps on purpose.
    Parameters before the last one that is trained, and a model whose ``zero_grad`` clears all, are not seen.
References
    https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disabling-gradient-computation
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import of_kernels
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.run.model import Action, CodeChange, Explains

ACCUMULATES = r"^torch::autograd::AccumulateGrad$"
# Up to the end of the last step that is looked at: a long recording has millions of operators behind it.
_UNTIL = "(SELECT max(host_end_ns) FROM steps WHERE device = $device AND step <= $last)"
# One parameter's gradient at each visit of a backward pass: ``added`` to what was there, or put in an empty place.
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
    """Yield a finding where every step's backward pass goes on behind the last gradient that is cleared, and that takes a part that is worth naming of the step."""
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
    # A step that does not count may show who clears them, too.
    telling = set(gradients.loc[~gradients["added"], "step"].tolist())
    if not steps | telling <= set(tails["step"].tolist()):
        return
    thread, start, end = (tails[name].to_numpy() for name in ("thread_id", "start_ns", "end_ns"))
    inside = context.launches.between(thread, start, end)
    unused, every = round(tails["unused"].mean()), round(tails["every"].mean())
    yield from of_kernels(
        context,
        context.work.iloc[np.sort(inside)],
        Advice(
            f"{unused} of {every} parameters get gradients that nobody clears, as if no optimizer trained them: {{cost}} of each step",
            Action(
                "Turn",
                "gradients off for what is not trained",
                ": torch.no_grad() around it, or requires_grad_(False) on its parameters.",
            ),
            note="Without the end of the backward pass, which serves these gradients alone. That the forward pass then keeps less for it is not in the prediction.",
            risk="None where no optimizer has these parameters. One that has them and steps rarely needs their gradients.",
            changes=CHANGES,
        ),
    )


def _tails(gradients: pd.DataFrame, launched: pd.DataFrame) -> pd.DataFrame:
    """Return the ends of backward passes that serve gradients which nobody clears: step, thread_id, start_ns, end_ns, the ``unused`` of ``every`` gradient.

    A pass ends where another thread launches something: the next forward pass, or the first gradient of another backward pass. Only passes like the
    step's first count: later ones add to what that left, cleared before or not.
    """
    tails = []
    for thread, mine in gradients.groupby("thread_id"):
        others = launched.loc[launched["thread_id"] != thread, "start_ns"].to_numpy()
        if not len(others):  # a pass of the thread that launches the forward pass too: nothing tells where it ends
            continue
        for step, of_step in mine.groupby("step"):
            first: tuple[int, int] | None = None
            for _, one in of_step.groupby(np.searchsorted(others, of_step["start_ns"].to_numpy())):
                kind = len(one), int(one["added"].sum())
                first = first or kind
                cleared = one.loc[~one["added"], "end_ns"]
                if kind != first or cleared.empty:
                    continue
                unused = one[one["start_ns"] >= cleared.max()]
                if len(unused):
                    tails.append((step, thread, cleared.max(), unused["end_ns"].max(), len(unused), len(one)))
    return pd.DataFrame(tails, columns=["step", "thread_id", "start_ns", "end_ns", "unused", "every"])


RULE = Rule(
    "unused-gradients",
    measure,
    reads=OF_TRACE,
    explains=Explains(topics=frozenset({"fewer_flops"})),
    requires=("steps",),
    bar=ONE_LINE,
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first: it is the smaller change, and a CUDA graph would hold work that nobody needs.",
        ),
    ),
)
