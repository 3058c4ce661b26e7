"""Experts are computed one after the other.

What it checks
    Repeated forward products with weights of the same shape and different numbers of rows. This is a loop over the experts of
    a mixture of experts, each with its own tokens.
Why it costs time
    Every expert launches separate small kernels to select, multiply and add its tokens. Often the host first reads back the
    number of tokens.
What to do
    Sort tokens by expert and multiply them in one grouped product (``torch._grouped_mm``, MegaBlocks, ScatterMoE). Or give
    every expert a fixed capacity and use ``torch.bmm``.
When it is wrong
    There are few large experts, and each keeps the GPU busy. Branches of a network with inputs of several lengths also look like
    this.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.passes import Passes, at_once, in_backward, passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.knowledge.kernel_work import product_work
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

FEWEST = 4  # Experts in a loop. Three consecutive products with different row counts can be an encoder and a decoder.
LONGEST = 4  # An expert has at most this many products: gate, up, down and one more.
UNLIKE = 3  # Fewest different row counts in a loop.

CHANGES = (
    CodeChange(
        "PyTorch",
        "for i, expert in enumerate(self.experts):\n    rows = (chosen == i).nonzero().squeeze(1)\n    out.index_add_(0, rows, expert(x[rows]))",
        "order = chosen.argsort()\nexperts = torch.arange(len(self.w), device=x.device)\n"
        "ends = torch.searchsorted(chosen[order], experts, right=True).int()   # bincount would wait for the GPU\n"
        "out[order] = F.grouped_mm(x[order], self.w, offs=ends)",
    ),
    CodeChange(
        "Transformers",
        "AutoModelForCausalLM.from_pretrained(name)",
        'AutoModelForCausalLM.from_pretrained(name, experts_implementation="grouped_mm")',
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if running loops over experts at once would save a relevant share of the step."""
    products = context.work[(context.work["category"] == "gemm") & context.work["flop_op_id"].notna()]
    calls = products[~products["gpu_op_id"].isin(in_backward(context))].sort_values("start_ns").drop_duplicates("flop_op_id")
    loops = [loop for _, part in calls.groupby("step") for loop in _loops(part)]
    if not loops:
        return
    bodies = [(_work_of(context, [op for body in loop for op in body]), len(loop)) for loop in loops]
    edits = [edit for body, times in bodies for part in (body.forward, body.backward) for edit in at_once(part, times)]
    rows = pd.concat([body.both for body, _ in bodies])
    predicted = context.predict_ms(edits)
    if predicted is None or context.step_ms is None or context.is_trifle(context.step_ms - predicted):
        return
    steps, longest = context.work_steps, max(len(loop) for loop in loops)
    yield Evidence(
        Advice(
            f"{longest} experts are computed one after the other: {count_in_words(rows, steps)} and {in_words(ms_per_step(rows, steps))} of each step",
            Action("Sort", "tokens by expert and compute all experts in one grouped product"),
            note="Predicted with one iteration of each loop that does the work of all. The launches of the other iterations are removed.",
            risk="Sums are added in another order. With a fixed capacity, tokens above it are dropped.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted,
        edits=edits,
        rows=evidence_of(rows, steps, ("operator",)),
        threshold_for="gain",
    )


def _loops(calls: pd.DataFrame) -> list[list[tuple[int, ...]]]:
    """Return the loops among the forward products of one step, in order.

    A loop is a list of bodies; a body is the tuple of its products' ids.
    """
    # Rows, columns and inner dimension by operator and input shapes. Each combination is computed once, because loops repeat it.
    sizes: dict[tuple[Any, Any], tuple[float, float, float] | None] = {}
    keys: list[tuple[float, float, float] | None] = []
    for operator, signature, dims, strides in zip(
        *(calls[name].tolist() for name in ("flop_operator", "flop_signature_id", "flop_dims", "flop_strides")), strict=True
    ):
        if (operator, signature) not in sizes:
            work = product_work(operator, dims, strides, "bf16")
            product = work.products[0] if work is not None else None
            is_expert = product is not None and product.batch == 1
            sizes[operator, signature] = (product.m, product.n, product.k) if product is not None and is_expert else None
        keys.append(sizes[operator, signature])
    weights = [key and key[1:] for key in keys]
    ids = [int(op) for op in calls["flop_op_id"]]
    loops, at = [], 0
    while at < len(keys):
        again = [p for p in range(1, LONGEST + 1) if weights[at] is not None and weights[at] in weights[at + p : at + p + 1]]
        period = next((p for p in again if _repeats(keys, at, p) >= FEWEST), 0)
        times = _repeats(keys, at, period) if period else 0
        rows = {key[0] for key in keys[at : at + period * times] if key is not None}
        if times and len(rows) >= UNLIKE:
            loops.append([tuple(ids[at + i * period : at + (i + 1) * period]) for i in range(times)])
            at += period * times
        else:
            at += 1
    return loops


def _repeats(keys: Sequence[tuple[float, float, float] | None], at: int, period: int) -> int:
    """Return how often the ``period`` products from position ``at`` repeat with weights of the same shape.

    All products of one body must have the same number of rows.
    """
    weights = [key[1:] if key is not None else None for key in keys[at : at + period]]
    times = 0
    while True:
        body = keys[at + times * period : at + (times + 1) * period]
        if (
            len(body) < period
            or None in body
            or [key[1:] for key in body if key] != weights
            or len({key[0] for key in body if key}) != 1
        ):
            return times
        times += 1


def _work_of(context: RuleContext, products: list[int]) -> Passes:
    """Return the launches between the first and the last product of a loop, and their backward passes."""
    begun = context.launches.begun_between(np.array(products, np.int64))
    return passes(context, begun.tolist())


RULE = Rule(
    "expert-loops",
    measure,
    reads=OF_TRACE | {"shapes"},
    explains=Explains(("launch_bound",), called="experts computed one after the other"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
