"""Deterministic algorithms fill all new memory.

What it checks
    Kernels that fill new tensors, launched by ``aten::empty`` and similar operators.
    ``torch.use_deterministic_algorithms(True)`` adds one such kernel for every allocated tensor.
Why it costs time
    New memory is written twice: first with NaN, then with the result. The host launches one more kernel for each operator. Some
    operators (scatter, index, backward passes of convolutions) also have a faster algorithm, which deterministic mode forbids.
What to do
    Use deterministic algorithms only for debugging. If results must repeat bit for bit,
    ``torch.utils.deterministic.fill_uninitialized_memory = False`` removes the fills.
When it is wrong
    You want the fills, to find reads of memory that was never written.
References
    https://docs.pytorch.org/docs/stable/deterministic.html
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
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
    """Yield a finding if fills of new memory take a relevant share of the step."""
    if not context.recording.named("^aten::fill_$"):
        return
    fills = {int(row[0]) for row in context.recording.rows(_FILLS)}
    yield from kernel_evidence(
        context,
        context.work[context.work["gpu_op_id"].isin(fills)],
        Advice(
            "Deterministic algorithms are on: {kernels} per step fill memory before it is overwritten, {cost} of each step",
            Action(
                "Turn",
                "deterministic algorithms off",
                ", or at least the fills: torch.utils.deterministic.fill_uninitialized_memory = False.",
            ),
            note="Predicted without the fills. The cost of the slower algorithms is not included.",
            risk="Without the fills, results still repeat. Without deterministic algorithms, results differ in the last bits from run to run.",
            changes=CHANGES,
        ),
        confidence="high",
    )


RULE = Rule(
    "deterministic-algorithms",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("launch_bound",), called="fills of new memory"),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
