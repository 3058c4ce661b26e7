"""Deterministic algorithms fill all new memory.

What it checks
    Fills launched by ``aten::empty`` and its like: what ``torch.use_deterministic_algorithms(True)`` adds to every tensor that is allocated.
Why it costs time
    Each result is written twice, once with NaN and once with what was computed, and the host launches a kernel more for each operator. Operators that
    have a faster form without a fixed order (scatter, index, backward passes of convolutions) do not use it.
What to do
    Keep it for debugging. Where results must repeat bit for bit, ``torch.utils.deterministic.fill_uninitialized_memory = False`` leaves the fills out.
When it is wrong
    Where the fills are wanted, to see who reads memory that was never written.
References
    https://docs.pytorch.org/docs/stable/deterministic.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.builders import of_kernels
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.run.model import Action, CodeChange, Explains

_FILLS = (
    "SELECT g.gpu_op_id FROM gpu_ops g JOIN named_cpu_ops f USING (cpu_op_id) JOIN named_cpu_ops a ON a.cpu_op_id = f.parent_id "
    "WHERE f.name = 'aten::fill_' AND regexp_matches(a.name, '^aten::(new_)?empty|^aten::resize_')"
)

CHANGES = (
    CodeChange(
        "PyTorch",
        "torch.use_deterministic_algorithms(True)",
        "torch.use_deterministic_algorithms(True)\ntorch.utils.deterministic.fill_uninitialized_memory = False",
    ),
    CodeChange("Lightning", "Trainer(deterministic=True)", "Trainer()"),
    CodeChange("Transformers", "TrainingArguments(full_determinism=True)", "TrainingArguments()"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding when fills of memory just allocated take a part that is worth naming of the step."""
    if not context.recording.named("^aten::fill_$"):
        return
    fills = {int(row[0]) for row in context.recording.rows(_FILLS)}
    yield from of_kernels(
        context,
        context.work[context.work["gpu_op_id"].isin(fills)],
        Advice(
            "Deterministic algorithms are on: {kernels} a step fill memory that is written right after, {cost} of each step",
            Action(
                "Turn",
                "deterministic algorithms off",
                ", or at least the fills: torch.utils.deterministic.fill_uninitialized_memory = False.",
            ),
            note="Without the fills; what the slower algorithms cost is not in it.",
            risk="Without the fills results still repeat; without deterministic algorithms they differ in the last bits from run to run.",
            changes=CHANGES,
        ),
        confidence="high",
    )


RULE = Rule(
    "deterministic-algorithms",
    measure,
    reads=OF_TRACE,
    explains=Explains(("launch_bound",), called="fills of new memory"),
    requires=("steps",),
    bar=ONE_LINE,
)
