"""The loss reads and writes its logits several times.

What it checks
    Kernels on a matrix of logits with a wide last dimension (a vocabulary): casts, log-softmax and its backward pass, fills,
    scaling. The products of the head do not count. A log-softmax written by hand counts as well: it has exponentials of the
    logits and selects one column of each row.
Why it costs time
    Logits of 8,192 tokens over 50,000 words take 0.8 GB in bf16 and 1.6 GB in FP32. Each operator of the loss reads and
    writes all of them. A fused loss reads them once in the forward pass, and once in the backward pass to write their
    gradient.
What to do
    Compile the loss, or use a fused linear cross entropy (Liger, cut-cross-entropy), which never writes all logits at once.
When it is wrong
    Other code needs the logits, so the loss must write them once.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html
    https://github.com/linkedin/Liger-Kernel
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import kernel_evidence
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.chains import LOSS, elements
from sawtooth.analysis.findings.recorded.counted_operations import numel, select_rows
from sawtooth.analysis.knowledge.dtypes import ITEM_BYTES, dtype_of_type
from sawtooth.analysis.knowledge.hardware import GpuPeaks
from sawtooth.analysis.knowledge.kernel_time import estimate
from sawtooth.analysis.knowledge.kernel_work import moving_work
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange

MIN_COLUMNS = 4096  # A classifier over a thousand classes has few rows and small logits.
PRODUCTS = ("gemm", "conv", "attention")
MOVING_CATEGORIES = ("elementwise", "softmax", "copy", "memset")
FORWARD, BACKWARD = LOSS
EXPONENTIALS = ("aten::exp", "aten::exp_")
COLUMN_SELECTIONS = ("aten::gather", "aten::index", "aten::nll_loss_forward", "aten::scatter_add_", "aten::nll_loss_backward")
# Bytes that a fused loss moves ÷ bytes of the logits. The forward pass reads the logits. The backward pass reads the logits and
# writes their gradient.
MOVED_BYTES = {FORWARD: 1.0, BACKWARD: 2.0}

CHANGES = (
    CodeChange(
        "PyTorch",
        "loss = F.cross_entropy(logits.float(), target)",
        "loss_of = torch.compile(lambda logits, target: F.cross_entropy(logits.float(), target))\nloss = loss_of(logits, target)",
    ),
    CodeChange(
        "Transformers",
        "model = AutoModelForCausalLM.from_pretrained(name)",
        "model = AutoLigerKernelForCausalLM.from_pretrained(name)   # pip install liger-kernel",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if kernels over the logits, without products, take a relevant share of the step.

    Its severity is "info", unless the log-softmax is written by hand.
    """
    gpu = context.rank.gpu
    work = context.work
    softmaxes = work[work["operator"] == FORWARD]
    sizes = {numel(row.dims[0]) for row in softmaxes.itertuples() if _is_wide(row)}
    by_hand = _hand_written(work)
    if gpu is None or not (sizes or len(by_hand)):
        return

    def moves_logits(row: Any) -> bool:
        return row.category in MOVING_CATEGORIES and any(numel(shape) in sizes for shape in row.dims or [])

    rows = select_rows(_near_softmax(work), moves_logits)
    rows = work.loc[rows.index.union(by_hand.index)]
    yield from kernel_evidence(
        context,
        rows,
        Advice(
            "The loss reads and writes its logits in {kernels}: {cost} of each step (matrix products not included)",
            Action(
                "Compile",
                "the loss",
                ", or call a fused linear cross entropy, which reads the logits only once in each pass.",
            ),
            note="Predicted with one kernel that reads the logits, and one in the backward pass that also writes their gradient. The other kernels are removed, but not the head's products.",
            risk="Loss and gradients differ in the last bits. The logits are then not stored, so other code cannot use them.",
            changes=CHANGES,
        ),
        edits=_edits(rows, _one_row_per_pass(rows, by_hand), gpu),
        severity="info" if by_hand.empty else None,
    )


def _is_wide(row: Any) -> bool:
    """Return whether the first input of a row's operator is as wide as a vocabulary."""
    return bool(row.dims and row.dims[0] and numel(row.dims[0]) and row.dims[0][-1] >= MIN_COLUMNS)


def _products_before(work: pd.DataFrame) -> pd.Series:
    """Return the number of products before each row on its stream in its step."""
    return work["category"].isin(PRODUCTS).groupby([work["step"], work["stream"]]).cumsum()


def _near_softmax(work: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without a product between them and a log-softmax or its backward pass.

    Other rows are left out, because a network's activations may be as large as logits.
    """
    stretches = pd.MultiIndex.from_arrays([work["step"], work["stream"], _products_before(work)])
    return work[stretches.isin(stretches[work["operator"].isin(MOVED_BYTES)])]


def _hand_written(work: pd.DataFrame) -> pd.DataFrame:
    """Return the kernels over logits with a hand-written log-softmax.

    Such kernels run between two products, with exponentials of the logits and the selection of a column of each row. A softmax of
    a router or of attention selects no columns. The column ``part`` numbers the stretches between two products.
    """
    candidates = work[work["operator"].isin((*EXPONENTIALS, *COLUMN_SELECTIONS))]
    wide = select_rows(candidates, _is_wide)
    stretches = pd.MultiIndex.from_arrays([work["step"], work["stream"], _products_before(work), elements(work)])
    wide_stretches = stretches[work.index.isin(wide.index)]
    are_exponentials = wide["operator"].isin(EXPONENTIALS).to_numpy()
    losses = wide_stretches[are_exponentials].intersection(wide_stretches[~are_exponentials])
    part = losses.get_indexer(stretches) if len(losses) else np.full(len(work), -1)
    return work.assign(part=part)[(part >= 0) & work["category"].isin((*MOVING_CATEGORIES, "reduction")).to_numpy()]


def _one_row_per_pass(rows: pd.DataFrame, by_hand: pd.DataFrame) -> pd.Series:
    """Return FORWARD or BACKWARD for one row of each pass over the logits, by the row's index.

    A hand-written softmax has its first exponential as the row of the forward pass, and its last kernel as that of the backward pass.
    """
    first = by_hand[by_hand["operator"].isin(EXPONENTIALS)].drop_duplicates("part").index
    last = by_hand.drop_duplicates("part", keep="last").index.difference(first)
    own_operators = rows.loc[rows["operator"].isin(MOVED_BYTES)].drop_duplicates("cpu_op_id")["operator"]
    return pd.concat(
        (own_operators, pd.Series(FORWARD, first, dtype=object), pd.Series(BACKWARD, last, dtype=object))
    ).sort_index()


def _edits(rows: pd.DataFrame, passes: pd.Series, gpu: GpuPeaks) -> list[Edit]:
    """Return the edits that reduce each pass to one kernel, in the narrowest dtype of the logits' kernels."""
    kept_ids: list[int] = []
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    dtypes = {dtype_of_type(kind) for kinds in rows["types"] for kind in (kinds or [])}
    dtype = "bf16" if dtypes & {"bf16", "fp16"} else "fp32"
    for row in rows.loc[passes.index].itertuples():
        operator = passes[row.Index]
        moved_bytes = MOVED_BYTES[operator] * max(numel(shape) for shape in row.dims) * ITEM_BYTES[dtype]
        time = estimate(moving_work(operator.removesuffix("_data"), moved_bytes, dtype), gpu)
        if time is not None:
            kept_ids.append(int(row.gpu_op_id))
            for edge, durations in edges.items():
                durations.append(max(min(round(getattr(time, edge) * 1e6), int(row.dur_ns)), 1))
    stays = rows["gpu_op_id"].isin(kept_ids) | rows["operator"].isin(MOVED_BYTES) | rows.index.isin(passes.index)
    return [
        TimedOps(tuple(kept_ids), *(tuple(durations) for durations in edges.values())),
        WithoutOps(tuple(rows.loc[~stays, "gpu_op_id"].tolist())),
    ]


RULE = Rule(
    "loss-head",
    measure,
    reads=TRACE_SOURCES | {"shapes", "gpu_peaks"},
    requires=("steps", "shapes", "gpu"),
    threshold=OTHER_CODE,
)
