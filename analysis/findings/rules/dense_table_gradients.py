"""Embedding tables get dense gradients, although a step looks up few of their rows.

What it checks
    Gradients of ``nn.Embedding`` and ``nn.EmbeddingBag``, which are as large as the table. The rule compares the number of
    indices in a step with the rows, and counts how often a table is looked up.
Why it costs time
    Each lookup fills a gradient of the whole table with zeros, several lookups of one table add such gradients, and the
    optimizer updates every row.
What to do
    Up to SPARSE_SHARE of the rows: ``sparse=True``, with ``SparseAdam``, ``SGD`` or ``Adagrad`` for the tables. Otherwise look up
    all indices of a table in one call.
When it is wrong
    Another part of the loss uses the whole table, such as a tied output layer or a norm of the weights. Several ranks: NCCL
    cannot reduce sparse gradients, so such jobs get no advice. With gradient accumulation, lookups of different batches cannot be
    one call.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
    https://docs.pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.actions import optimizers, steps_of
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.tables import TableLookups, table_lookups
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.passes import first_shape
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, launched_by_optimizer, ms_per_step, numel
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, ScaledOps, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_number, in_words, percent

# Above this share of the rows, a sparse update gains little: SparseAdam moves each looked-up value 42 times through memory,
# fused Adam each value of the table 7 times, and the gradient is filled once. Both take as long at 19 % of the rows.
SPARSE_SHARE = 0.1
# The host launches the sparse update after it has waited for the number of different rows, so its launches are not hidden.
LAUNCH_NS = 10_000
JOIN_PASSES = 2  # A concatenation reads and writes each value.
SUM_LAUNCHES = 3  # Sparse gradients of one table are added by concatenating indices and values.
RANGE = (0.5, 2.0)  # Assumed range of the time of a sparse update, which was measured on CPUs only, as factors.


@dataclass(frozen=True)
class SparseUpdate:
    """An optimizer for sparse gradients.

    ``passes`` are values moved per looked-up value, ``launches`` are per table. They are counted in PyTorch's code for COO gradients: gathers, sums and the operators on their values. If it ``waits``, the
    host reads the number of different rows.
    """

    name: str
    passes: int
    launches: int
    waits: bool = True


SPARSE = {
    "Adam": SparseUpdate("SparseAdam", 42, 40),
    "AdamW": SparseUpdate("SparseAdam", 42, 40),
    "Adagrad": SparseUpdate("Adagrad", 22, 25),
    "SGD": SparseUpdate("SGD", 5, 5, waits=False),
}
USUAL = (("rows", "100_000"), ("width", "64"), ("optimizer", "AdamW"), ("options", "lr=1e-3"), ("sparse", "SparseAdam"))

CHANGES = (
    CodeChange(
        "PyTorch",
        "self.table = nn.Embedding($rows, $width)\nopt = torch.optim.$optimizer(model.parameters(), $options)",
        "self.table = nn.Embedding($rows, $width, sparse=True)   # in __init__; the same weights, so checkpoints stay valid\n"
        "tables = [m.weight for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.sparse]\n"
        "others = [p for p in model.parameters() if all(p is not table for table in tables)]\n"
        "opts = [torch.optim.$sparse(tables, lr=1e-3), torch.optim.$optimizer(others, $options)]\n"
        "for opt in opts:   # after loss.backward()\n    opt.step(); opt.zero_grad()",
        usual=USUAL,
    ),
)
JOINED = (
    CodeChange(
        "PyTorch",
        "h, t = self.table(head), self.table(tail)   # a gradient of the whole table for each call",
        "h, t = self.table(torch.cat([head, tail])).split([len(head), len(tail)])   # one gradient",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if sparse gradients, or one lookup for each table, would save enough."""
    if len(context.run.ranks) > 1:
        return  # NCCL reduces no sparse gradients.
    every = table_lookups(context)
    few = [lookups for lookups in every if lookups.touched <= SPARSE_SHARE and len(lookups.fills)]
    several = [
        lookups for lookups in every if lookups not in few and len(lookups.sums) and lookups.lookups >= 2 * lookups.tables
    ]
    names = [name for name in optimizers(context.recording) if name in SPARSE]
    if few and len(names) == 1 and (evidence := _sparse(context, few, names[0])) is not None:
        yield evidence
    elif several:
        yield _joined(context, several)


def _sparse(context: RuleContext, few: Sequence[TableLookups], name: str) -> Evidence | None:
    """Return the evidence for sparse gradients; None if they gain too little or are not supported."""
    update, steps = SPARSE[name], context.work_steps
    updates = _of_tables(context, few, name)
    if name == "SGD" and updates["operator"].isin(("aten::mul_", "aten::_foreach_mul_")).any():
        return None  # Momentum of sparse gradients grows in each step.
    dense = pd.concat([part for lookups in few for part in (lookups.fills, lookups.sums)])
    update_ms = float((updates["dur_ns"] * updates["share"]).sum()) / 1e6 / steps
    cost = ms_per_step(dense, steps) + update_ms
    edits = _sparse_edits(context, few, updates, update)
    gain = context.step.gain_ms(edits)
    if gain is not None and context.share(gain) < OTHER_CODE.share:
        return None  # After other changes, such as a CUDA graph, it cannot gain more: no graph contains the update's wait.
    largest = max(few, key=lambda lookups: lookups.values)
    tables = in_number(sum(lookups.tables for lookups in few), "embedding table")
    return Evidence(
        Advice(
            f"A step looks up at most {percent(largest.touched, 1)} of the rows of {tables}, but their gradients are dense: {in_words(cost)} of each step",
            Action(
                "Make",
                "the gradients of embedding tables sparse",
                f": sparse=True, and {update.name} for the tables. The other parameters keep their optimizer.",
            ),
            note="Predicted without the gradients of whole tables and their share of the optimizer's time, and with the launches and the memory traffic "
            f"of {update.name} for each looked-up row. That traffic is not measured on this GPU.",
            risk=_risk(context, few, name),
            changes=tuple(
                change.filled(
                    rows=f"{largest.rows:_}", width=str(largest.width), optimizer=name, options="…", sparse=update.name
                )
                for change in CHANGES
            ),
        ),
        lost_ms=cost,
        stated_ms=cost,
        edits=edits,
        rows=evidence_of(pd.concat([dense, updates]), steps, ("operator",)),
        threshold_for="gain",
    )


def _risk(context: RuleContext, few: Sequence[TableLookups], name: str) -> str:
    """Return the limits of sparse gradients that concern this loop."""
    lazy = "SparseAdam has no weight decay, and updates the moments of looked-up rows only, so that results differ slightly."
    own = {"SGD": "Momentum, weight decay and fused=True do not support sparse gradients.",
           "Adagrad": "Weight decay and fused=True do not support sparse gradients."}  # fmt: skip
    return f"{own.get(name, lazy)} clip_grad_norm_ fails for sparse gradients: give it the other parameters only. NCCL cannot reduce them."


def _of_tables(context: RuleContext, few: Sequence[TableLookups], name: str) -> pd.DataFrame:
    """Return the optimizer's rows that update tables; ``share`` is the tables' share of their values."""
    device = context.rank.device
    rows = context.work[context.work["gpu_op_id"].isin(launched_by_optimizer(context.recording, device, steps_of([name])))]
    parameters = parameters_of(context.recording, device)
    tables = {(lookups.rows, lookups.width): lookups.tables for lookups in few}
    every = sum(numel(list(shape)) * count for shape, count in parameters.items())
    of_all = min(sum(lookups.values for lookups in few) / every, 1.0)

    def share(row: Any) -> float:
        first = row.dims[0] if row.dims else []
        if str(row.operator).startswith(("aten::_foreach_", "aten::_fused_")):
            shapes = [tuple(shape) for shape in first if isinstance(shape, list)]
            if not shapes:
                return of_all  # PyTorch does not record long lists of shapes.
            total = sum(numel(list(shape)) for shape in shapes)
            own = sum(numel(list(shape)) * min(count, shapes.count(shape)) for shape, count in tables.items())
            return own / total if total else 0.0
        shape = first_shape(row.dims)
        return tables[shape] / parameters[shape] if shape in tables else 0.0

    of_kind = {row.launch_kind: share(row) for row in rows.drop_duplicates("launch_kind").itertuples()}
    shares = rows["launch_kind"].map(of_kind).astype(float)
    return rows.assign(share=shares)[shares > 0]


def _sparse_edits(context: RuleContext, few: Sequence[TableLookups], updates: pd.DataFrame, update: SparseUpdate) -> list[Edit]:
    """Return the edits with a sparse update in place of each step's first fill."""
    traffic_ns = launches = 0.0
    for lookups in few:
        row_ns = float(lookups.fills["dur_ns"].mean()) / lookups.rows  # One pass over the values of a row.
        again = max(lookups.lookups - lookups.tables, 0.0)
        traffic_ns += lookups.indices * row_ns * (update.passes + (JOIN_PASSES if again else 0))
        launches += lookups.tables * update.launches + SUM_LAUNCHES * again
    fills = pd.concat([lookups.fills for lookups in few]).sort_values("start_ns")
    first = tuple(fills.drop_duplicates("step")["gpu_op_id"].tolist())
    removed = [
        *fills["gpu_op_id"],
        *(op for lookups in few for op in lookups.sums["gpu_op_id"]),
        *updates.loc[updates["share"] == 1, "gpu_op_id"],
    ]
    waits_ns = launches * LAUNCH_NS if update.waits else 0.0
    times = ((round(traffic_ns * factor + waits_ns),) * len(first) for factor in (1.0, *RANGE))
    edits: list[Edit] = [TimedOps(first, *times), MoreLaunches(first, (round(launches),) * len(first))]
    edits += [
        ScaledOps(tuple(part["gpu_op_id"].tolist()), 1 - float(share))
        for share, part in updates[updates["share"] < 1].groupby("share")
    ]
    return [*edits, WithoutOps(tuple(sorted({int(op) for op in removed} - set(first))))]


def _joined(context: RuleContext, several: Sequence[TableLookups]) -> Evidence:
    """Return the evidence on tables that are looked up several times per step."""
    steps = context.work_steps
    removed: list[int] = []
    joins: dict[int, int] = {}
    for lookups in several:
        row_ns = float(lookups.fills["dur_ns"].mean()) / lookups.rows
        for step, fills in lookups.fills.groupby("step"):
            removed += fills["gpu_op_id"].tolist()[lookups.tables :]
            sums = lookups.sums.loc[lookups.sums["step"] == step, "gpu_op_id"].tolist()[: len(fills) - lookups.tables]
            removed += sums[1:]
            joins |= {op: max(round(JOIN_PASSES * row_ns * lookups.indices), 1) for op in sums[:1]}
    gone = context.work[context.work["gpu_op_id"].isin((*removed, *joins))]
    cost = ms_per_step(gone, steps)
    largest = max(several, key=lambda lookups: lookups.values)
    times = largest.lookups / largest.tables
    return Evidence(
        Advice(
            f"A table of {largest.rows:,} rows is looked up {times:.0f} times per step, each time with a gradient of the whole table: {in_words(cost)}",
            Action("Look up", "all indices of a table in one call", ": concatenate the indices, and split the result."),
            note="Predicted with one gradient for each table, without the sums of several, and with the concatenation of the gradients of the results.",
            risk="Sums are added in another order. Lookups that need the result of another one cannot be joined.",
            changes=JOINED,
        ),
        lost_ms=cost,
        cost_ms=cost,
        edits=[TimedOps(tuple(joins), tuple(joins.values())), WithoutOps(tuple(removed))],
        rows=evidence_of(gone, steps, ("operator",)),
        threshold_for="gain",
    )


RULE = Rule(
    "dense-table-gradients",
    measure,
    reads=OF_TRACE | {"shapes"},
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first: a CUDA graph cannot contain an update whose host waits for the number of rows.",
        ),
    ),
)
