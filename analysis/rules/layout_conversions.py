"""Convolutions convert their layout back and forth.

What it checks
    Kernels that only turn NCHW into NHWC or back around convolutions, and batch norms of such a network.
Why it costs time
    Tensor-core convolutions work on NHWC; a model in the default layout pays for the conversion of inputs and outputs at every layer, and its
    normalizations and poolings read memory in the slow order.
What to do
    Keep model and inputs in ``channels_last``.
When it is wrong
    Layers without an NHWC kernel convert back: look for them after the change.
References
    https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.findings import Rule, RuleInput, in_words
from analysis.hardware import Gpu
from analysis.run_result import CodeChange, Finding
from analysis.step_work import evidence_of, memory_bound_ns, ms_per_step
from analysis.whatif import Edit, TimedOps, WithoutOps

WORTH_NAMING = 0.03  # two lines to change: worth it from 3 % of the step

CHANGES = (
    CodeChange(
        "PyTorch",
        "model = resnet50().cuda()\nfor x, y in loader:\n    x = x.cuda(non_blocking=True)",
        "model = resnet50().cuda().to(memory_format=torch.channels_last)\nfor x, y in loader:\n"
        "    x = x.cuda(non_blocking=True).to(memory_format=torch.channels_last)",
    ),
    CodeChange(
        "Lightning",
        "def configure_model(self): ...",
        "def configure_model(self):\n    self.to(memory_format=torch.channels_last)",
    ),
)


def check(given: RuleInput) -> Iterator[Finding]:
    """Yield a finding when layout conversions take more than WORTH_NAMING of the step."""
    gpu, steps = given.rank.gpu, given.work_steps
    work = given.work
    layout = work[work["category"] == "layout"]
    cost = ms_per_step(layout, steps)
    if gpu is None or given.share(cost) < WORTH_NAMING:
        return
    norms = work[
        work["operator"].isin(
            (
                "aten::native_batch_norm",
                "aten::native_batch_norm_backward",
                "aten::cudnn_batch_norm",
                "aten::cudnn_batch_norm_backward",
            )
        )
    ]
    edits = _edits(layout, norms, gpu)
    yield given.finding(
        RULE.slug,
        f"Layout conversions around convolutions take {in_words(cost)} of each step",
        "Keep the model and its inputs in channels_last, the layout tensor-core convolutions work in.",
        ceiling_ms=cost + ms_per_step(norms, steps),
        edits=edits,
        confidence="medium",
        note="Without the conversions, batch norms at what memory allows; poolings and activations gain on top.",
        risk="Code that calls view() on activations must use reshape().",
        changes=CHANGES,
        evidence=evidence_of(pd.concat([layout, norms]), steps, ("category", "kernel")),
    )


def _edits(layout: pd.DataFrame, norms: pd.DataFrame, gpu: Gpu) -> list[Edit]:
    timed = [min(int(row.dur_ns), int(memory_bound_ns(row, gpu) or row.dur_ns)) for row in norms.itertuples()]
    return [TimedOps(tuple(norms["gpu_op_id"].tolist()), tuple(timed)), WithoutOps(tuple(layout["gpu_op_id"].tolist()))]


RULE = Rule("layout-conversions", ("steps", "shapes", "gpu"), check)
