"""Embedding tables get dense gradients, although a step looks up few of their rows.

What it checks
    Gradients of ``nn.Embedding`` and ``nn.EmbeddingBag``, which are as large as the table. The rule compares the number of
    indices in a step with the number of rows, and counts the lookups of each table. Jobs of several ranks get no advice, because
    NCCL cannot reduce sparse gradients.
Why it costs time
    Each lookup fills a gradient of the whole table with zeros. Several lookups of one table add these gradients, and the optimizer
    updates every row.
What to do
    If a step looks up at most MAX_SPARSE_SHARE of the rows, use ``sparse=True``, with ``SparseAdam``, ``SGD`` or ``Adagrad`` for the
    tables. Otherwise look up all indices of a table in one call.
When it is wrong
    Another part of the loss uses the whole table, such as a tied output layer or a norm of the weights. With gradient
    accumulation, one call cannot look up the indices of different batches.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
    https://docs.pytorch.org/docs/stable/generated/torch.optim.SparseAdam.html
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sawtooth.analysis.findings.actions import optimizers, step_annotations
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.tables import TableLookups, table_lookups
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Relation, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.passes import first_shape
from sawtooth.analysis.findings.recorded.counted_operations import evidence_of, launched_by_optimizer, ms_per_step, numel
from sawtooth.analysis.findings.recorded.parameters import parameters_of
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, ScaledOps, TimedOps, WithoutOps
from sawtooth.analysis.run.model import Action, CodeChange
from sawtooth.analysis.units import in_number, in_words, percent

# Share of a table's rows. SparseAdam reads or writes each looked-up value 42 times. Fused Adam reads or writes each value of the
# table 7 times, after a fill. The two updates take equally long at 19 % of the rows.
MAX_SPARSE_SHARE = 0.1
# Time of a launch of the sparse update. The GPU waits for it, because the host first waits for the number of different rows.
LAUNCH_NS = 10_000
JOIN_ACCESSES = 2  # A concatenation reads and writes each value.
SUM_LAUNCHES = 3  # PyTorch adds sparse gradients of one table by concatenating indices and values.
UNCERTAINTY = (0.5, 2.0)  # Assumed factors of a sparse update's time, which was measured on CPUs only.


@dataclass(frozen=True)
class SparseUpdate:
    """An optimizer for sparse gradients.

    ``accesses`` is the number of reads and writes per looked-up value, and ``launches`` the number of launches per table, both
    counted in PyTorch's code for COO gradients. If the optimizer ``waits``, the host reads the number of different rows.
    """

    name: str
    accesses: int
    launches: int
    waits: bool = True


SPARSE_UPDATES = {
    "Adam": SparseUpdate("SparseAdam", 42, 40),
    "AdamW": SparseUpdate("SparseAdam", 42, 40),
    "Adagrad": SparseUpdate("Adagrad", 22, 25),
    "SGD": SparseUpdate("SGD", 5, 5, waits=False),
}
DEFAULT_SLOTS = (("rows", "100_000"), ("width", "64"), ("optimizer", "AdamW"), ("options", "lr=1e-3"), ("sparse", "SparseAdam"))

CHANGES = (
    CodeChange(
        "PyTorch",
        "self.table = nn.Embedding($rows, $width)\nopt = torch.optim.$optimizer(model.parameters(), $options)",
        "self.table = nn.Embedding($rows, $width, sparse=True)   # in __init__; the same weights, so checkpoints stay valid\n"
        "tables = [m.weight for m in model.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag)) and m.sparse]\n"
        "others = [p for p in model.parameters() if all(p is not table for table in tables)]\n"
        "opts = [torch.optim.$sparse(tables, lr=1e-3), torch.optim.$optimizer(others, $options)]\n"
        "for opt in opts:   # after loss.backward()\n    opt.step(); opt.zero_grad()",
        slot_defaults=DEFAULT_SLOTS,
    ),
)
JOIN_CHANGES = (
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
    all_tables = table_lookups(context)
    sparse_tables = [lookups for lookups in all_tables if lookups.max_touched_share <= MAX_SPARSE_SHARE and len(lookups.fills)]
    repeated_tables = [
        lookups
        for lookups in all_tables
        if lookups not in sparse_tables and len(lookups.sums) and lookups.lookups >= 2 * lookups.tables
    ]
    names = [name for name in optimizers(context.recording) if name in SPARSE_UPDATES]
    if sparse_tables and len(names) == 1 and (evidence := _sparse_evidence(context, sparse_tables, names[0])) is not None:
        yield evidence
    elif repeated_tables:
        yield _joining_evidence(context, repeated_tables)


def _sparse_evidence(context: RuleContext, sparse_tables: Sequence[TableLookups], name: str) -> Evidence | None:
    """Return the evidence for sparse gradients, None if they gain too little or are not supported."""
    update, steps = SPARSE_UPDATES[name], context.work_steps
    updates = _table_updates(context, sparse_tables, name)
    if name == "SGD" and updates["operator"].isin(("aten::mul_", "aten::_foreach_mul_")).any():
        return None  # Momentum of sparse gradients grows in each step.
    dense_rows = pd.concat([rows for lookups in sparse_tables for rows in (lookups.fills, lookups.sums)])
    update_ms = float((updates["dur_ns"] * updates["share"]).sum()) / 1e6 / steps
    cost_ms = ms_per_step(dense_rows, steps) + update_ms
    edits = _sparse_edits(sparse_tables, updates, update)
    gain_ms = context.step.gain_ms(edits)
    if gain_ms is not None and context.share(gain_ms) < OTHER_CODE.share:
        # Another change, such as a CUDA graph, does not raise this gain, because no graph contains the update's wait.
        return None
    largest = max(sparse_tables, key=lambda lookups: lookups.values)
    tables = in_number(sum(lookups.tables for lookups in sparse_tables), "embedding table")
    return Evidence(
        Advice(
            f"A step looks up at most {percent(largest.max_touched_share, 1)} of the rows of {tables}, but their gradients are dense: {in_words(cost_ms)} of each step",
            Action(
                "Make",
                "the gradients of embedding tables sparse",
                f": sparse=True, and {update.name} for the tables. The other parameters keep their optimizer.",
            ),
            note="Predicted without the gradients of whole tables and their share of the optimizer's time, and with the launches and the memory traffic "
            f"of {update.name} for each looked-up row. This traffic is not measured on this GPU.",
            risk=_risk(name),
            changes=tuple(
                change.filled(
                    rows=f"{largest.rows:_}", width=str(largest.width), optimizer=name, options="…", sparse=update.name
                )
                for change in CHANGES
            ),
        ),
        lost_ms=cost_ms,
        stated_ms=cost_ms,
        edits=edits,
        rows=evidence_of(pd.concat([dense_rows, updates]), steps, ("operator",)),
        threshold_for="gain",
    )


def _risk(name: str) -> str:
    """Return the limits of sparse gradients for the optimizer ``name``."""
    adam_limits = (
        "SparseAdam has no weight decay, and updates the moments of looked-up rows only, so that results differ slightly."
    )
    limits = {"SGD": "Momentum, weight decay and fused=True do not support sparse gradients.",
              "Adagrad": "Weight decay and fused=True do not support sparse gradients."}  # fmt: skip
    return f"{limits.get(name, adam_limits)} clip_grad_norm_ fails for sparse gradients: give it the other parameters only. NCCL cannot reduce them."


def _table_updates(context: RuleContext, sparse_tables: Sequence[TableLookups], name: str) -> pd.DataFrame:
    """Return the optimizer's rows that update tables, with the column ``share``.

    The share is the part of the updated values that belongs to tables.
    """
    device = context.rank.device
    optimizer_ids = launched_by_optimizer(context.recording, device, step_annotations([name]))
    rows = context.work[context.work["gpu_op_id"].isin(optimizer_ids)]
    parameters = parameters_of(context.recording, device)
    tables = {(lookups.rows, lookups.width): lookups.tables for lookups in sparse_tables}
    parameter_values = sum(numel(list(shape)) * count for shape, count in parameters.items())
    share_of_model = min(sum(lookups.values for lookups in sparse_tables) / parameter_values, 1.0)

    def table_share(row: Any) -> float:
        first = row.dims[0] if row.dims else []
        if str(row.operator).startswith(("aten::_foreach_", "aten::_fused_")):
            shapes = [tuple(shape) for shape in first if isinstance(shape, list)]
            if not shapes:
                return share_of_model  # PyTorch does not record long lists of shapes.
            all_values = sum(numel(list(shape)) for shape in shapes)
            table_values = sum(numel(list(shape)) * min(count, shapes.count(shape)) for shape, count in tables.items())
            return table_values / all_values if all_values else 0.0
        shape = first_shape(row.dims)
        return tables[shape] / parameters[shape] if shape in tables else 0.0

    share_by_kind = {row.launch_kind: table_share(row) for row in rows.drop_duplicates("launch_kind").itertuples()}
    shares = rows["launch_kind"].map(share_by_kind).astype(float)
    return rows.assign(share=shares)[shares > 0]


def _sparse_edits(sparse_tables: Sequence[TableLookups], updates: pd.DataFrame, update: SparseUpdate) -> list[Edit]:
    """Return the edits with a sparse update in place of each step's first fill."""
    traffic_ns = launches = 0.0
    for lookups in sparse_tables:
        joins = max(lookups.lookups - lookups.tables, 0.0)
        traffic_ns += lookups.indices * lookups.row_fill_ns * (update.accesses + (JOIN_ACCESSES if joins else 0))
        launches += lookups.tables * update.launches + SUM_LAUNCHES * joins
    fills = pd.concat([lookups.fills for lookups in sparse_tables]).sort_values("start_ns")
    first_fills = tuple(fills.drop_duplicates("step")["gpu_op_id"].tolist())
    removed = [
        *fills["gpu_op_id"],
        *(op for lookups in sparse_tables for op in lookups.sums["gpu_op_id"]),
        *updates.loc[updates["share"] == 1, "gpu_op_id"],
    ]
    launch_ns = launches * LAUNCH_NS if update.waits else 0.0
    times = ((round(traffic_ns * factor + launch_ns),) * len(first_fills) for factor in (1.0, *UNCERTAINTY))
    edits: list[Edit] = [TimedOps(first_fills, *times), MoreLaunches(first_fills, (round(launches),) * len(first_fills))]
    edits += [
        ScaledOps(tuple(rows["gpu_op_id"].tolist()), 1 - float(share))
        for share, rows in updates[updates["share"] < 1].groupby("share")
    ]
    return [*edits, WithoutOps(tuple(sorted({int(op) for op in removed} - set(first_fills))))]


def _joining_evidence(context: RuleContext, repeated_tables: Sequence[TableLookups]) -> Evidence:
    """Return the evidence on tables that a step looks up several times."""
    steps = context.work_steps
    removed: list[int] = []
    join_times: dict[int, int] = {}
    for lookups in repeated_tables:
        for step, fills in lookups.fills.groupby("step"):
            removed += fills["gpu_op_id"].tolist()[lookups.tables :]
            sums = lookups.sums.loc[lookups.sums["step"] == step, "gpu_op_id"].tolist()[: len(fills) - lookups.tables]
            removed += sums[1:]
            join_times |= {op: max(round(JOIN_ACCESSES * lookups.row_fill_ns * lookups.indices), 1) for op in sums[:1]}
    changed_rows = context.work[context.work["gpu_op_id"].isin((*removed, *join_times))]
    cost_ms = ms_per_step(changed_rows, steps)
    largest = max(repeated_tables, key=lambda lookups: lookups.values)
    times = largest.lookups / largest.tables
    return Evidence(
        Advice(
            f"A table of {largest.rows:,} rows is looked up {times:.0f} times per step, each time with a gradient of the whole table: {in_words(cost_ms)}",
            Action("Look up", "all indices of a table in one call", ": concatenate the indices, and split the result."),
            note="Predicted with one gradient for each table, without the sums of several gradients, and with the concatenation of the gradients of the results.",
            risk="Sums are added in another order. A lookup that needs the result of another lookup cannot be part of one call.",
            changes=JOIN_CHANGES,
        ),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=[TimedOps(tuple(join_times), tuple(join_times.values())), WithoutOps(tuple(removed))],
        rows=evidence_of(changed_rows, steps, ("operator",)),
        threshold_for="gain",
    )


RULE = Rule(
    "dense-table-gradients",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
    comes_before=(
        Relation(
            "launch-bound",
            "“{title}” comes first, because a CUDA graph cannot contain an update in which the host waits for the number of rows.",
        ),
    ),
)
