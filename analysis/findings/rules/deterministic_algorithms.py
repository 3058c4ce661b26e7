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
from sawtooth.analysis.findings.model import OF_TRACE
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.01  # one line to take out: worth it from 1 % of the step
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


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield a finding when fills of memory just allocated take more than WORTH_NAMING of the step."""
    if not context.recording.named("^aten::fill_$"):
        return
    fills = {int(row[0]) for row in context.recording.rows(_FILLS)}
    yield from of_kernels(
        context,
        RULE.slug,
        context.work[context.work["gpu_op_id"].isin(fills)],
        "Deterministic algorithms are on: {kernels} a step fill memory that is written right after, {cost} of each step",
        "Turn deterministic algorithms off, or at least the fills: torch.utils.deterministic.fill_uninitialized_memory = False.",
        worth_naming=WORTH_NAMING,
        confidence="high",
        note="Without the fills; what the slower algorithms cost is not in it.",
        risk="Without the fills results still repeat; without deterministic algorithms they differ in the last bits from run to run.",
        changes=CHANGES,
    )


RULE = Rule(
    "deterministic-algorithms", ("steps",), check, Explains(("launch_bound",), called="fills of new memory"), reads=OF_TRACE
)
