"""Experts are computed one after the other.

What it checks
    Repeated forward products with weights of one shape and different numbers of rows, as in a loop over the experts of a
    mixture of experts. Each expert gets its own number of tokens.
Why it costs time
    Every expert launches separate small kernels to select, multiply and add its tokens. Often the host first reads back the
    number of tokens.
What to do
    Sort tokens by expert and multiply them in one grouped product (``torch._grouped_mm``, MegaBlocks, ScatterMoE). Or give
    every expert a fixed capacity and use ``torch.bmm``.
When it is wrong
    There are few large experts, and each keeps the GPU busy. A network whose branches get inputs of several lengths looks like
    a loop over experts.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.builders import without_reads
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.host_reads import MASK_OPERATORS, SINGLE_VALUE_READS, waiting_calls
from sawtooth.analysis.findings.queries.passes import Passes, backward_op_ids, merged_body_edits, passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.knowledge.kernel_work import product_work
from sawtooth.analysis.replay.edits import WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MIN_EXPERTS = 4  # Three consecutive products with different row counts can be an encoder and a decoder.
MAX_PRODUCTS = 4  # Products of an expert: gate, up, down and one more.
MIN_ROW_COUNTS = 3  # Different row counts in a loop. A batch that is processed in equal parts has only one.
ProductSize = tuple[float, float, float]  # Rows, columns and inner dimension.

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
    calls = (
        products[~products["gpu_op_id"].isin(backward_op_ids(context))].sort_values("start_ns").drop_duplicates("flop_op_id")
    )
    loops = [loop for _, part in calls.groupby("step") for loop in _loops(part)]
    if not loops:
        return
    loop_passes = [(_loop_passes(context, [op for body in loop for op in body]), len(loop)) for loop in loops]
    reads = _reads_in(context, loops)
    edits = without_reads(context, reads) if reads else []  # The advised code reads no number of tokens.
    read_ops = {op for edit in edits if isinstance(edit, WithoutOps) for op in edit.ops}
    edits += [
        edit
        for passes, experts in loop_passes
        for one_pass in (passes.forward, passes.backward)
        for edit in merged_body_edits(one_pass[~one_pass["gpu_op_id"].isin(read_ops)], experts)
    ]
    rows = pd.concat([passes.both_passes for passes, _ in loop_passes])
    predicted_ms = context.predict_ms(edits)
    if predicted_ms is None or context.step_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    steps, most_experts = context.work_steps, max(len(loop) for loop in loops)
    yield Evidence(
        Advice(
            f"{most_experts} experts are computed one after the other: {count_in_words(rows, steps)} and {in_words(ms_per_step(rows, steps))} of each step",
            Action("Sort", "tokens by expert and compute all experts in one grouped product"),
            note="Predicted with one iteration of each loop that does the work of all its iterations. The launches of the other iterations are removed."
            + (" So are the host's waits for the number of tokens of each expert." if reads else ""),
            risk="Sums are added in another order. With a fixed capacity, tokens beyond the capacity are dropped.",
            changes=CHANGES,
        ),
        lost_ms=context.step_ms - predicted_ms,
        edits=edits,
        rows=evidence_of(rows, steps, ("operator",)),
        threshold_for="gain",
    )


def _loops(calls: pd.DataFrame) -> list[list[tuple[int, ...]]]:
    """Return the loops among the forward products of one step, in order.

    A loop is a list of bodies; a body is the tuple of its products' ids.
    """
    sizes = _product_sizes(calls)
    weights = [size and size[1:] for size in sizes]
    ids = [int(op) for op in calls["flop_op_id"]]
    loops, start = [], 0
    while start < len(sizes):
        periods = [
            period
            for period in range(1, MAX_PRODUCTS + 1)
            if weights[start] is not None and weights[start] in weights[start + period : start + period + 1]
        ]
        period = next((p for p in periods if _repetitions(sizes, start, p) >= MIN_EXPERTS), 0)
        experts = _repetitions(sizes, start, period) if period else 0
        row_counts = {size[0] for size in sizes[start : start + period * experts] if size is not None}
        if experts and len(row_counts) >= MIN_ROW_COUNTS:
            loops.append([tuple(ids[start + i * period : start + (i + 1) * period]) for i in range(experts)])
            start += period * experts
        else:
            start += 1
    return loops


def _product_sizes(calls: pd.DataFrame) -> list[ProductSize | None]:
    """Return the size of each product, None for batched products; computed once for equal input shapes."""
    known_sizes: dict[tuple[Any, Any], ProductSize | None] = {}
    sizes: list[ProductSize | None] = []
    for operator, signature, dims, strides in zip(
        *(calls[name].tolist() for name in ("flop_operator", "flop_signature_id", "flop_dims", "flop_strides")), strict=True
    ):
        if (operator, signature) not in known_sizes:
            work = product_work(operator, dims, strides, "bf16")
            product = work.products[0] if work is not None else None
            is_single = product is not None and product.batch == 1
            known_sizes[operator, signature] = (product.m, product.n, product.k) if product is not None and is_single else None
        sizes.append(known_sizes[operator, signature])
    return sizes


def _repetitions(sizes: Sequence[ProductSize | None], start: int, period: int) -> int:
    """Return how often the ``period`` products from ``start`` repeat with weights of the same shape.

    All products of one body must have the same number of rows.
    """
    weights = [size[1:] if size is not None else None for size in sizes[start : start + period]]
    repetitions = 0
    while True:
        body = sizes[start + repetitions * period : start + (repetitions + 1) * period]
        if len(body) < period or None in body:
            return repetitions
        body_weights, row_counts = [size[1:] for size in body if size], {size[0] for size in body if size}
        if body_weights != weights or len(row_counts) != 1:
            return repetitions
        repetitions += 1


def _loop_passes(context: RuleContext, products: list[int]) -> Passes:
    """Return the launches between the first and the last product of a loop, and their backward passes."""
    operators = context.launches.operators_begun_between(np.array(products, np.int64))
    return passes(context, operators.tolist())


def _reads_in(context: RuleContext, loops: Sequence[Sequence[tuple[int, ...]]]) -> tuple[int, ...]:
    """Return the calls in which the host waits for a number of tokens: reads and masks in the loops.

    The read of the first expert comes before its first product, so a loop begins one mean iteration before this product.
    """
    waits = [*waiting_calls(context, SINGLE_VALUE_READS), *waiting_calls(context, MASK_OPERATORS)]
    products = sorted({loop[position][0] for loop in loops for position in (0, -1)})
    start_of = dict(
        context.recording.rows(
            "SELECT cpu_op_id, start_ns FROM cpu_ops WHERE cpu_op_id IN (SELECT unnest(?::BIGINT[]))", [products]
        )
    )
    spans = []
    for loop in loops:
        first, last = start_of[loop[0][0]], start_of[loop[-1][0]]
        spans.append((first - (last - first) // (len(loop) - 1), last))
    calls = context.recording.rows(
        "SELECT call_id, start_ns FROM runtime_calls WHERE call_id IN (SELECT unnest(?::BIGINT[])) ORDER BY 1",
        [sorted({*waits})],
    )
    return tuple(int(call) for call, at in calls if any(begin <= at <= end for begin, end in spans))


RULE = Rule(
    "expert-loops",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="experts computed one after the other"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
