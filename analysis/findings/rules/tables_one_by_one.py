"""Embedding tables are looked up one after the other.

What it checks
    Consecutive lookups (``nn.Embedding``, ``nn.EmbeddingBag``) of equally many indices in different tables of one width, without a
    matrix product in between. The parameters of the step must contain a table for each lookup.
Why it costs time
    Each lookup launches small kernels, forward and backward. A lookup of a bag and the gradient of this lookup need about twelve.
What to do
    Store the tables as one table, and add the position where a table begins to each index. Libraries such as TorchRec do this for
    many tables.
When it is wrong
    Some tables are frozen or have another optimizer. These tables must stay separate.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
    https://docs.pytorch.org/torchrec/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.tables import recorded_arguments
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import Passes, evidence_of_saved_launches, merged_body_edits, passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, ms_per_step
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

MIN_TABLES = 8  # Words, positions and a few features of a sample are not a problem.
LOOKUP_OPERATORS = r"^aten::(embedding|embedding_bag)$"

CHANGES = (
    CodeChange(
        "PyTorch",
        "rows = [table(i) for table, i in zip(self.tables, x.T)]   # x: batch, tables",
        "self.table = nn.Embedding(sum(sizes), width)   # in __init__, from the joined weights: torch.cat\n"
        'self.register_buffer("starts", torch.tensor([0, *sizes[:-1]]).cumsum(0))\n'
        "rows = self.table(x + self.starts).unbind(1)   # the same list; one lookup",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if one lookup for all tables would save a relevant share of the step."""
    loops = list(_loops(context))
    if not loops:
        return
    edits = [
        edit for tables, work in loops for part in (work.forward, work.backward) for edit in merged_body_edits(part, tables)
    ]
    rows, steps = pd.concat([work.both_passes for _, work in loops]), context.work_steps
    yield from evidence_of_saved_launches(
        context,
        Advice(
            f"{max(tables for tables, _ in loops)} embedding tables are looked up one after the other: {count_in_words(rows, steps)} and "
            f"{in_words(ms_per_step(rows, steps))} of each step",
            Action(
                "Look up",
                "all embedding tables in one",
                ": one nn.Embedding with the rows of all, and an offset for each table.",
            ),
            note="Predicted with the launches of one lookup, forward and backward, whose kernels do the work of all.",
            risk="One weight replaces those of the tables: join them (torch.cat) when an old checkpoint is loaded.",
            changes=CHANGES,
        ),
        edits,
        rows,
    )


def _loops(context: RuleContext) -> Iterator[tuple[int, Passes]]:
    """Yield number and work of each counted step's consecutive lookups in different tables."""
    calls = operators(context, LOOKUP_OPERATORS).frame
    calls = calls[calls["step"].isin(context.work["step"].unique())]
    if len(calls) < MIN_TABLES * context.work_steps:
        return
    parameters = parameters_of(context.recording, context.rank.device)
    shapes = {op: dims for op, (dims, _) in recorded_arguments(context, calls["id"].tolist()).items()}
    products = np.sort(context.work.loc[context.work["category"] == "gemm", "flop_op_id"].dropna().to_numpy(np.int64))
    for _, thread_calls in calls.sort_values("id").groupby(["step", "thread_id"]):
        ids = thread_calls["id"].to_numpy(np.int64)
        # Ids are in the order of the starts. A product in between, or another kind of lookup, ends a loop.
        kinds = [(np.searchsorted(products, op), *_kind(shapes.get(op, []))) for op in ids.tolist()]
        start = 0
        for end in range(1, len(ids) + 1):
            if end < len(ids) and kinds[end] == kinds[start]:
                continue
            table_shapes = {tuple(shapes[op][0]) for op in ids[start:end].tolist() if shapes.get(op)}
            if end - start >= MIN_TABLES and sum(parameters[shape] for shape in table_shapes) >= end - start:
                loop_operators = context.launches.operators_begun_between(ids[start:end])
                yield end - start, passes(context, loop_operators.tolist())
            start = end


def _kind(dims: list[Any]) -> tuple[Any, ...]:
    """Return the width of a lookup's table and the shape of the indices, empty if not recorded."""
    return (dims[0][-1], tuple(dims[1])) if len(dims) > 1 and dims[0] else ()


RULE = Rule(
    "tables-one-by-one",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="embedding tables looked up one by one"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
