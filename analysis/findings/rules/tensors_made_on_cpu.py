"""Tensors are made on the CPU inside the step and then copied.

What it checks
    Pageable copies to the GPU in the step after operators that make a tensor on the host (``triu``, ``ones``, ``full``,
    ``arange``, ``randn`` …), outside the data loader. Tensors that are filled with host data afterwards are left out.
Why it costs time
    For each such tensor, the host makes it, prepares the copy, and waits for it.
What to do
    Make it on the GPU (``device=x.device``), or once before the loop as a buffer.
When it is wrong
    The tensor depends on data that only the host has. Then pin it and copy it with ``non_blocking=True``.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#create-tensors-directly-on-the-target-device
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.findings.queries.calls import lost_in_calls
from sawtooth.analysis.findings.queries.copies import copies_of_made_tensors, slower_in_run
from sawtooth.analysis.replay.edits import WithoutCalls
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_number, in_words

TRIANGLES = ("tril", "triu")
FILLED = ("randn", "rand", "ones", "zeros")  # Functions that need only a size.

SLOWER = " This work probably makes the run's steps longer, but the profiled steps do not contain that time."

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
    slower = slower_in_run(context)
    edits = [WithoutCalls(calls, slower_in_run=slower, python_stays=True)]
    predicted = context.predict_ms(edits)
    lost = lost_in_calls(context, "blocking_copy", calls)
    gain = context.step_ms - predicted if predicted is not None and context.step_ms else lost
    if context.is_trifle(max(gain, lost)):
        return
    maker = str(cpu_tensors.frame["maker"].mode()[0])
    yield Evidence(
        Advice(
            f"{in_number(cpu_tensors.count, 'tensor per step is', 'tensors per step are')} made on the CPU ({maker}) and copied while the host waits: {_cost(max(gain, lost), slower)}",
            Action("Make", "tensors on the GPU", ": with device=…, or once before the loop as a buffer."),
            note=f"Predicted by the replay without the copies and the host's time before each, except long Python code.{SLOWER if slower else ''}",
            risk="Random numbers drawn on the GPU differ from those of the CPU.",
            changes=(*_of_tensor(context, cpu_tensors.frame, maker), *CHANGES),
        ),
        lost_ms=max(gain, lost),
        cost_ms=lost,
        threshold_for="larger",
        edits=edits,
        confidence="medium" if slower else "high",
        rows=cpu_tensors.rows(),
        places=cpu_tensors.places(),
    )


def _of_tensor(context: RuleContext, frame: pd.DataFrame, maker: str) -> tuple[CodeChange, ...]:
    """Return the change to the largest tensor made by ``maker``, with its size.

    Empty if the size or the way to make it is not known.
    """
    work = context.work
    rows = work[work["gpu_op_id"].isin(frame.loc[frame["maker"] == maker, "id"])]
    sizes = [dims[0] for dims in rows["dims"] if dims and dims[0]]
    if not sizes:
        return ()
    size = ", ".join(map(str, max(sizes, key=math.prod)))
    function = maker.removeprefix("aten::").rstrip("_")
    if function in TRIANGLES:
        mask = f"torch.{function}(torch.ones({size}))"
        after = f"self.register_buffer('mask', {mask}, persistent=False)   # once, in __init__"
        return (CodeChange("PyTorch", f"mask = {mask}.to(device)   # every forward", after, of_run=True),)
    if function not in FILLED:
        return ()
    return (
        CodeChange("PyTorch", f"torch.{function}({size}).to(device)", f"torch.{function}({size}, device=device)", of_run=True),
    )


def _cost(gain_ms: float, slower: bool) -> str:
    """Return the cost in words; marked as likely if it is mostly outside the profiled steps."""
    return (
        f"most likely {in_words(gain_ms)} of the run's step, which is longer than the profiled steps"
        if slower
        else f"{in_words(gain_ms)} of the step"
    )


RULE = Rule(
    "tensors-made-on-cpu",
    measure,
    reads=OF_TRACE | {"telemetry"},
    explains=Explains(("blocking_copy", "host_compute"), called="tensors made on the CPU"),
    requires=("steps",),
    threshold=ONE_LINE,
)
