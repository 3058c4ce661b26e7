"""Tensors are made on the CPU inside the step and then copied.

What it checks
    Pageable copies to the GPU in the step directly after an operator that makes a tensor on the host (``triu``, ``ones``,
    ``full``, ``arange``, ``randn`` …), outside the data loader. Tensors that are then filled with host data are left out.
Why it costs time
    The host makes each tensor, prepares its copy, and waits for the copy.
What to do
    Make the tensors on the GPU (``device=x.device``), or once before the loop as buffers.
When it is wrong
    The tensor depends on data that only the host has. Then pin the tensor and copy it with ``non_blocking=True``.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#create-tensors-directly-on-the-target-device
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import lost_in_calls_ms
from sawtooth.analysis.findings.queries.copies import copies_of_made_tensors, made_tensors_may_slow_run
from sawtooth.analysis.replay.edits import WithoutCalls
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_number, in_words

TRIANGULAR_MASKS = ("tril", "triu")
FROM_SIZE = ("randn", "rand", "ones", "zeros")  # Functions whose only argument is a size.

SLOWER_NOTE = " This work probably makes the run's steps longer, but the profiled steps do not contain this time."

CHANGES = (
    CodeChange(
        "PyTorch",
        "mask = torch.triu(torch.ones(n, n), 1).bool().to(x.device)   # every forward",
        "self.register_buffer('mask', torch.triu(torch.ones(n, n), 1).bool(), persistent=False)   # once\n"
        "# or, where it changes: torch.ones(n, n, device=x.device)",
    ),
    CodeChange("Lightning", "noise = torch.randn(n).to(self.device)", "noise = torch.randn(n, device=self.device)"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if making and copying tensors costs a relevant share of the step."""
    cpu_tensors = copies_of_made_tensors(context)
    calls = tuple(int(c) for c in cpu_tensors.frame["call_id"].unique())
    if not calls:
        return
    slows_run = made_tensors_may_slow_run(context)
    edits = [WithoutCalls(calls, slower_in_run=slows_run, python_stays=True)]
    predicted_ms = context.predict_ms(edits)
    lost_ms = lost_in_calls_ms(context, "blocking_copy", calls)
    saved_ms = context.step_ms - predicted_ms if predicted_ms is not None and context.step_ms else lost_ms
    cost_ms = max(saved_ms, lost_ms)
    if context.is_negligible(cost_ms):
        return
    maker = str(cpu_tensors.frame["maker"].mode()[0])
    yield Evidence(
        Advice(
            f"{in_number(cpu_tensors.count_per_step, 'tensor per step is', 'tensors per step are')} made on the CPU ({maker}) and copied while the host waits: {_cost_clause(cost_ms, slows_run)}",
            Action("Make", "tensors on the GPU", ": with device=…, or once before the loop as a buffer."),
            note=f"Predicted by the replay without the copies and the host's time before them, except for long Python code.{SLOWER_NOTE if slows_run else ''}",
            risk="Random numbers drawn on the GPU differ from those of the CPU.",
            changes=(*_change_of_largest(context, cpu_tensors.frame, maker), *CHANGES),
        ),
        lost_ms=cost_ms,
        cost_ms=lost_ms,
        threshold_for="larger",
        edits=edits,
        confidence="medium" if slows_run else "high",
        rows=cpu_tensors.rows(),
        spans=cpu_tensors.spans(),
    )


def _change_of_largest(context: RuleContext, frame: pd.DataFrame, maker: str) -> tuple[CodeChange, ...]:
    """Return the code change for the largest tensor that ``maker`` makes.

    Empty if the tensor's size is not recorded, or if ``maker`` needs more than a size.
    """
    work = context.work
    rows = work[work["gpu_op_id"].isin(frame.loc[frame["maker"] == maker, "id"])]
    sizes = [dims[0] for dims in rows["dims"] if dims and dims[0]]
    if not sizes:
        return ()
    size = ", ".join(map(str, max(sizes, key=math.prod)))
    function = maker.removeprefix("aten::").rstrip("_")
    if function in TRIANGULAR_MASKS:
        mask = f"torch.{function}(torch.ones({size}))"
        after = f"self.register_buffer('mask', {mask}, persistent=False)   # once, in __init__"
        return (CodeChange("PyTorch", f"mask = {mask}.to(device)   # every forward", after, of_run=True),)
    if function not in FROM_SIZE:
        return ()
    return (
        CodeChange("PyTorch", f"torch.{function}({size}).to(device)", f"torch.{function}({size}, device=device)", of_run=True),
    )


def _cost_clause(gain_ms: float, slows_run: bool) -> str:
    """Return the cost in words.

    The text says "most likely" if the profiled steps do not contain most of the cost.
    """
    return (
        f"most likely {in_words(gain_ms)} of the run's step, which is longer than the profiled steps"
        if slows_run
        else f"{in_words(gain_ms)} of the step"
    )


RULE = Rule(
    "tensors-made-on-cpu",
    measure,
    reads=TRACE_SOURCES | {"telemetry"},
    explains=Explains(("blocking_copy", "host_compute"), called="tensors made on the CPU"),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
