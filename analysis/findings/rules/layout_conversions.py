"""Convolutions convert their layout back and forth.

What it checks
    Kernels around convolutions that only convert NCHW to NHWC or back, PyTorch's own kernels for depthwise convolutions, and
    the batch norms of such a network.
Why it costs time
    Tensor-core convolutions work on NHWC. A model in the default layout converts inputs and outputs at every layer. Its norms
    and poolings read memory in the slower order.
What to do
    Keep the model and its inputs in ``channels_last``, or in ``channels_last_3d`` for convolutions over three dimensions.
When it is wrong
    Convolutions over one dimension have no ``channels_last``. You can write them as two-dimensional convolutions of height 1,
    which takes more work. Layers without an NHWC kernel convert back: look for such layers after the change. A network whose
    batch norms run in NHWC already uses ``channels_last`` and gives no finding. Networks with many group norms give none,
    because group norms convert back. Convolutions with few channels give none, because they do not become faster.
References
    https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.actions import MODEL
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.kernel_retiming import DEPTHWISE, NORMS, channel_counts, channels_last_edits
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import CALL_TO_CHECK
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, ms_per_step, select_rows
from sawtooth.analysis.replay.edits import Edit, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

GROUP_NORM, CONVOLUTION = "aten::native_group_norm", "aten::convolution"
BATCH_NORMS = [operator for operator in NORMS if "batch_norm" in operator]
# Group norms per convolution. PyTorch's group norm works on NCHW and returns NCHW, so the next convolution converts again.
MIN_GROUP_NORMS = 0.25
# With fewer input and output channels, NHWC kernels leave most of a tile empty (a U-Net with 48 channels became 14 % slower).
TILE_WIDTH = 64

LAYOUT_3D = "channels_last_3d"  # The layout of tensors with five dimensions.
LAYOUT = (("layout", "channels_last"),)  # Value of the code's slot, except for LAYOUT_3D.
CHANGES = (
    CodeChange(
        "PyTorch",
        "model = $model.cuda()\nfor x, y in loader:\n    x = x.cuda(non_blocking=True)",
        "model = $model.cuda().to(memory_format=torch.$layout)\nfor x, y in loader:\n"
        "    x = x.cuda(non_blocking=True).to(memory_format=torch.$layout)",
        slot_defaults=(*MODEL, *LAYOUT),
    ),
    CodeChange(
        "Lightning",
        "def configure_model(self): ...",
        "def configure_model(self):\n    self.to(memory_format=torch.$layout)",
        slot_defaults=LAYOUT,
    ),
)

CHANGES_1D = (
    CodeChange(
        "PyTorch",
        "nn.Conv1d(64, 128, 7, padding=3)   # and BatchNorm1d",
        "nn.Conv2d(64, 128, (1, 7), padding=(0, 3))   # and BatchNorm2d\n"
        "x = x.unsqueeze(2).to(memory_format=torch.channels_last)   # once, before the first; model in channels_last too",
    ),
)
IN_CHANNELS_LAST = Action(
    "Keep", "the model and its inputs in channels_last", ", the layout that tensor-core convolutions use."
)
AS_CONV2D = Action(
    "Write",
    "one-dimensional convolutions as Conv2d of height 1",
    ", and keep the model and its inputs in channels_last, which Conv1d does not support.",
)

WITH_CUDNN_DEPTHWISE = Action(
    "Keep",
    "the model and its inputs in channels_last",
    ": PyTorch then calls cuDNN for depthwise convolutions. Or use fewer such convolutions, because they compute little for the memory that they read and write.",
)
IN_CHANNELS_LAST_3D = Action(
    "Keep", "the model and its inputs in channels_last_3d", ", the layout of tensors of five dimensions."
)
NOTE = (
    "Predicted without the conversions, and with the time of norms in NHWC; group norms gain nothing. "
    "Convolutions whose channels are not a multiple of 8 may get slower kernels: pad them."
)
NOTE_3D = " For three dimensions, cuDNN has fewer kernels. The only measured network took 9.39 ms, although 6.90 ms (5.73 to 11.9) were predicted."
NOTE_DEPTHWISE = " In PyTorch's benchmark, cuDNN's depthwise kernels reach 0.6 to 5.8 times the speed of PyTorch's own."
CHANGES_3D = tuple(
    replace(change, slot_defaults=tuple((slot, LAYOUT_3D if slot == "layout" else text) for slot, text in change.slot_defaults))
    for change in CHANGES
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if layout conversions take a relevant share of the step."""
    gpu, steps = context.rank.gpu, context.work_steps
    work = context.work
    convolutions = work[work["category"] == "conv"]
    if gpu is None or _converts_back(work) or _is_in_nhwc(work):
        return
    conversions = select_rows(work[work["category"] == "layout"], _is_wide)
    depthwise = convolutions[convolutions["kernel"].str.contains(DEPTHWISE, na=False)]
    conversions_ms, cost_ms = ms_per_step(conversions, steps), ms_per_step(pd.concat([conversions, depthwise]), steps)
    if context.is_negligible(cost_ms):
        return
    mostly_depthwise = conversions_ms < cost_ms / 2
    norms = work[work["operator"].isin(NORMS)]
    norms_ms = ms_per_step(norms, steps)
    edits: list[Edit] = [*channels_last_edits(convolutions, norms, gpu), WithoutOps(tuple(conversions["gpu_op_id"].tolist()))]
    in_1d, in_3d = (
        2 * ms_per_step(select_rows(conversions, partial(_has_dimensions, count=count)), steps) > cost_ms for count in (1, 3)
    )
    yield Evidence(
        Advice(
            f"PyTorch's own kernels for depthwise convolutions take {in_words(cost_ms - conversions_ms)} of each step"
            if mostly_depthwise
            else f"Layout conversions around {'one-dimensional ' if in_1d else ''}convolutions take {in_words(conversions_ms)} of each step",
            WITH_CUDNN_DEPTHWISE
            if mostly_depthwise
            else AS_CONV2D
            if in_1d
            else IN_CHANNELS_LAST_3D
            if in_3d
            else IN_CHANNELS_LAST,
            note=f"{NOTE}{NOTE_3D if in_3d else ''}{NOTE_DEPTHWISE if len(depthwise) else ''}",
            risk="Code that calls view() on activations must use reshape().",
            changes=CHANGES_1D if in_1d else CHANGES_3D if in_3d else CHANGES,
        ),
        lost_ms=cost_ms + norms_ms,
        cost_ms=cost_ms,
        stated_ms=cost_ms - conversions_ms if mostly_depthwise else conversions_ms,
        rest=f"time in the norms, which take {in_words(norms_ms)} in the slower layout" if len(norms) else "",
        edits=edits,
        confidence="low" if in_1d or in_3d else "medium",
        at_most="warning" if in_1d else None,
        rows=evidence_of(pd.concat([conversions, norms, depthwise]), steps, ("category", "kernel")),
    )


def _converts_back(work: pd.DataFrame) -> bool:
    """Return whether group norms between the convolutions would convert each layout back."""
    norms = work.loc[work["operator"] == GROUP_NORM, "cpu_op_id"].nunique()
    convolutions = work.loc[work["flop_operator"] == CONVOLUTION, "flop_op_id"].nunique()
    return norms > 0 and norms >= MIN_GROUP_NORMS * convolutions


def _is_in_nhwc(work: pd.DataFrame) -> bool:
    """Return whether the batch norms run in NHWC.

    The network then already uses ``channels_last``, and some convolution, such as a grouped one, has no NHWC kernel.
    """
    norms = work[work["operator"].isin(BATCH_NORMS)]
    in_nhwc = norms["kernel"].str.contains("nhwc|channels_last", case=False, na=False)
    return 2 * int(norms.loc[in_nhwc, "dur_ns"].sum()) > int(norms["dur_ns"].sum())


def _has_dimensions(row: Any, count: int) -> bool:
    """Return whether the convolution behind a conversion has ``count`` spatial dimensions."""
    dims, input_place = row.flop_dims or [], int(row.flop_operator == "aten::convolution_backward")
    return len(dims) > input_place and isinstance(dims[input_place], list) and len(dims[input_place]) == count + 2


def _is_wide(row: Any) -> bool:
    """Return whether the convolution behind a conversion has enough channels to gain from NHWC.

    True if the channels are not known.
    """
    channels = channel_counts(row)
    return channels is None or max(channels) >= TILE_WIDTH


RULE = Rule(
    "layout-conversions",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    explains=Explains(sets=("layout",)),
    requires=("steps", "shapes", "gpu"),
    threshold=CALL_TO_CHECK,
)
