"""The loss reads and writes its logits again and again.

What it checks
    Kernels that work on a matrix of logits with a wide last dimension (a vocabulary): casts, log-softmax, its backward pass, fills, scaling. The
    products of the head are not counted.
Why it costs time
    Logits of 8,192 tokens over 50,000 words are 0.8 GB in bf16 and 1.6 GB in FP32. Each operator of the loss reads and writes all of them, where a
    fused one reads them once forward, and once backward to write their gradient.
What to do
    Compile the loss, or call a fused linear cross entropy (Liger, cut-cross-entropy), which never writes all logits at once.
When it is wrong
    Logits that are needed for something else must be written once after all.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html
    https://github.com/linkedin/Liger-Kernel
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import of_kernels
from sawtooth.analysis.findings.rule import Rule, RuleContext
from sawtooth.analysis.findings.work import chosen, numel
from sawtooth.analysis.knowledge.dtypes import ITEM_BYTES, dtype_of_type
from sawtooth.analysis.knowledge.hardware import Gpu
from sawtooth.analysis.knowledge.kernel_time import estimate
from sawtooth.analysis.knowledge.kernel_work import moving_work
from sawtooth.analysis.replay.edits import Edit, TimedOps, WithoutOps
from sawtooth.analysis.run.model import CodeChange, Explains, Finding

WORTH_NAMING = 0.05  # another loss function and a compiler: worth it from 5 % of the step
VOCABULARY = 4096  # columns: a classifier over a thousand classes has few rows and small logits
PRODUCTS = ("gemm", "conv", "attention")
MOVES = ("elementwise", "softmax", "copy", "memset")
FORWARD, BACKWARD = "aten::_log_softmax", "aten::_log_softmax_backward_data"
# What a fused loss moves, in logits of 16 bit: read forward; read backward, and their gradient written.
MOVED = {FORWARD: 1.0, BACKWARD: 2.0}

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


def check(context: RuleContext) -> Iterator[Finding]:
    """Yield information when kernels over the logits take more than WORTH_NAMING of the step, products not counted."""
    gpu = context.rank.gpu
    softmaxes = context.work[context.work["operator"] == FORWARD]
    sizes = {numel(row.dims[0]) for row in softmaxes.itertuples() if row.dims and row.dims[0] and row.dims[0][-1] >= VOCABULARY}
    if gpu is None or not sizes:
        return
    near = _beside_softmax(context.work)
    rows = chosen(near, lambda row: row.category in MOVES and any(numel(shape) in sizes for shape in row.dims or []))
    yield from of_kernels(
        context,
        RULE.slug,
        rows,
        "The loss reads and writes its logits in {kernels}: {cost} of each step beside the head's products",
        "Compile the loss, or call a fused linear cross entropy, which reads the logits once forward and once backward.",
        worth_naming=WORTH_NAMING,
        edits=_edits(rows, gpu),
        severity="info",
        note="Forward one pass over the logits, backward one that writes their gradient; the other kernels gone. The products stay.",
        risk="Loss and gradients differ in the last bits; logits are no longer at hand where they are never written.",
        changes=CHANGES,
    )


def _beside_softmax(work: pd.DataFrame) -> pd.DataFrame:
    """Return the rows between the same two products as a log-softmax or its backward pass: activations of a network may be as large as logits."""
    place = work["category"].isin(PRODUCTS).groupby([work["step"], work["stream"]]).cumsum()
    key = pd.MultiIndex.from_arrays([work["step"], work["stream"], place])
    return work[key.isin(key[work["operator"].isin(MOVED)])]


def _edits(rows: pd.DataFrame, gpu: Gpu) -> list[Edit]:
    """The softmax and its backward pass each take what moving the logits takes in the narrowest dtype that the step holds them in."""
    kept: list[int] = []
    edges: dict[str, list[int]] = {"ms": [], "low": [], "high": []}
    narrow = (
        "bf16" if any(dtype_of_type(kind) in ("bf16", "fp16") for kinds in rows["types"] for kind in (kinds or [])) else "fp32"
    )
    for row in rows[rows["operator"].isin(MOVED)].drop_duplicates("cpu_op_id").itertuples():
        moved = MOVED[row.operator] * numel(row.dims[0]) * ITEM_BYTES[narrow]
        time = estimate(moving_work(row.operator.removesuffix("_data"), moved, narrow), gpu)
        if time is not None:
            kept.append(int(row.gpu_op_id))
            for edge, durations in edges.items():
                durations.append(max(min(round(getattr(time, edge) * 1e6), int(row.dur_ns)), 1))
    gone = rows.loc[~rows["gpu_op_id"].isin(kept) & ~rows["operator"].isin(MOVED), "gpu_op_id"]
    return [TimedOps(tuple(kept), *(tuple(each) for each in edges.values())), WithoutOps(tuple(np.asarray(gone).tolist()))]


RULE = Rule("loss-head", ("steps", "shapes", "gpu"), check, Explains())
