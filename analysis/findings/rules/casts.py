"""Tensors are cast back and forth.

What it checks
    Copies that change the dtype (``aten::to``, ``aten::_to_copy``, ``aten::copy_`` with different input dtypes) in the
    counted steps.
Why it costs time
    A cast reads and writes the whole tensor. Under autocast, weights are cast in every forward pass unless the cast is
    cached. FP32 layers between 16-bit layers need casts in both directions.
What to do
    Keep the model in bf16 with FP32 master weights in the optimizer. Or use autocast for a larger part of the code. Or compile
    the model, because the compiler fuses casts.
When it is wrong
    The casts convert losses and norms to FP32, for accuracy, and take little time.
References
    https://docs.pytorch.org/docs/stable/amp.html#autocast-op-reference
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sawtooth.analysis.findings.actions import MODEL
from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CHOICE_WITH_COSTS
from sawtooth.analysis.findings.queries.communication import FSDP
from sawtooth.analysis.findings.recorded.counted_operations import select_rows
from sawtooth.analysis.run.model import Action, CodeChange

COPYING_OPERATORS = ("aten::copy_", "aten::_to_copy", "aten::to")

CHANGES = (
    CodeChange(
        "PyTorch",
        "model = $model.cuda()   # FP32 weights, cast in every forward pass",
        "model = torch.compile($model.cuda())   # fuses casts into the kernels around them",
        slot_defaults=MODEL,
    ),
)
SHARDED = CodeChange(
    "PyTorch",
    "fully_shard(model)",
    "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\nfully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))   # gathers bf16 weights; FP32 stays sharded",
)


def is_cast(row: Any) -> bool:
    """Return whether a row of ``step_work`` is a copy between two floating-point dtypes."""
    floating_types = [t for t in row.types or [] if isinstance(t, str) and ("loat" in t or "alf" in t or t == "double")]
    changes_dtype = len(set(floating_types[:2])) == 2
    return row.operator in COPYING_OPERATORS and row.kind == "kernel" and changes_dtype


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if casts take a relevant share of the step."""
    yield from kernel_evidence(
        context,
        select_rows(context.work, is_cast),
        Advice(
            "Casts between dtypes take {cost} of each step",
            Action(
                "Keep", "tensors in one dtype across neighbouring operators", ", or compile the model so that casts are fused."
            ),
            note="Predicted without all casts. This is an upper limit, because losses and norms should stay in FP32.",
            risk="Weights in bf16 without FP32 master copies lose small updates.",
            changes=(SHARDED, *CHANGES) if context.recording.named(FSDP) else CHANGES,
        ),
        host_may_stay=True,  # Compiling fuses casts into other kernels, but the host may then take as long as before.
        severity="info",
        confidence="low",
    )


RULE = Rule(
    "casts",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    requires=("steps", "shapes"),
    threshold=CHOICE_WITH_COSTS,
)
