"""Embedding tables are looked up one after the other.

What it checks
    Consecutive lookups (``nn.Embedding``, ``nn.EmbeddingBag``) of equally many indices in different tables of one width, without a
    matrix product in between. The parameters of the step must contain a table for each lookup.
Why it costs time
    Each lookup launches small kernels, forward and backward. A lookup of a bag and the gradient of this lookup need about twelve.
    With sparse gradients, SparseAdam launches about 40 kernels for each table, and waits for the number of different rows.
What to do
    Store the tables as one table, and add the position where a table begins to each index. Libraries such as TorchRec do this for
    many tables.
    Tables of different widths with sparse gradients cannot be joined. If they are small, dense gradients take less time.
When it is wrong
    Some tables are frozen or have another optimizer. These tables must stay separate.
References
    https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
    https://docs.pytorch.org/torchrec/
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.tables import MIN_TABLES, SparseUpdates, lookups_in_a_row, sparse_updates, table_bytes
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.calls import operators
from sawtooth.analysis.findings.queries.passes import evidence_of_saved_launches, merged_body_edits, passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, ms_per_step
from sawtooth.analysis.replay.edits import Edit, MoreLaunches, TimedOps, WithoutOps, WithoutWaits
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

DENSE_INSTEAD = "For small tables, dense gradients (without sparse=True) and one fused optimizer may also take less time."
# Zeroing a dense gradient and a fused Adam step access each value of a table 8 times. A dense gradient needs about 6 more
# launches than a sparse one.
DENSE_ACCESSES, DENSE_LAUNCHES = 8, 6
DENSE_CHANGES = (
    CodeChange(
        "PyTorch",
        "self.tables = nn.ModuleList(nn.Embedding(rows, width, sparse=True) for rows in sizes)\n"
        "opts = [torch.optim.SparseAdam(tables), torch.optim.AdamW(others)]",
        "self.tables = nn.ModuleList(nn.Embedding(rows, width) for rows in sizes)\n"
        "opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)   # instead of both",
    ),
)
BAGS = r"^aten::embedding_bag$"
SPARSE_SLOT = (("sparse", ""),)
CHANGES = (
    CodeChange(
        "PyTorch",
        "rows = [table(i) for table, i in zip(self.tables, x.T)]   # x: batch, tables",
        "self.table = nn.Embedding(sum(sizes), width$sparse)   # in __init__, from the joined weights: torch.cat\n"
        'self.register_buffer("starts", torch.tensor([0, *sizes[:-1]]).cumsum(0))\n'
        "rows = self.table(x + self.starts).unbind(1)   # the same list; one lookup",
        slot_defaults=SPARSE_SLOT,
    ),
)
BAG_CHANGES = (
    CodeChange(
        "PyTorch",
        "rows = [bag(i) for bag, i in zip(self.bags, x.unbind(1))]   # x: batch, tables, indices of a bag",
        'self.bag = nn.EmbeddingBag(sum(sizes), width, mode="sum"$sparse)   # in __init__, from the joined weights: torch.cat\n'
        'self.register_buffer("starts", torch.tensor([0, *sizes[:-1]]).cumsum(0))\n'
        "rows = self.bag((x + self.starts[:, None]).flatten(0, 1)).unflatten(0, (len(x), -1)).unbind(1)   # the same list; one lookup",
        slot_defaults=SPARSE_SLOT,
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if one lookup for all tables would save a relevant share of the step."""
    loops = [(tables, passes(context, op_ids)) for tables, op_ids in lookups_in_a_row(context)]
    if not loops:
        yield from _dense_instead(context)
        return
    edits: list[Edit] = [
        edit for tables, work in loops for part in (work.forward, work.backward) for edit in merged_body_edits(part, tables)
    ]
    rows, steps = pd.concat([work.both_passes for _, work in loops]), context.work_steps
    updates = sparse_updates(context)
    joined = sum(tables for tables, _ in loops) / steps
    updates_joined = updates is not None and updates.tables >= joined
    if updates is not None and updates_joined:
        edits += _joined_updates(updates, updates.tables - joined + len(loops) / steps)
        rows = pd.concat([rows, updates.rows])
    are_bags = bool(operators(context, BAGS).count_per_step)
    yield from evidence_of_saved_launches(
        context,
        Advice(
            f"{max(tables for tables, _ in loops)} embedding tables are looked up {'and updated ' if updates_joined else ''}one after the other: {count_in_words(rows, steps)} and "
            f"{in_words(ms_per_step(rows, steps))} of each step",
            Action(
                "Look up",
                "all embedding tables in one",
                f": one nn.{'EmbeddingBag' if are_bags else 'Embedding'} with the rows of all, and an offset for each table.",
            ),
            note="The prediction keeps the work of all lookups, but launches kernels for only one, forward and backward."
            + (" SparseAdam then updates one table instead of all." if updates_joined else ""),
            risk="One weight replaces those of the tables: join them (torch.cat) when an old checkpoint is loaded."
            + (f" {DENSE_INSTEAD}" if updates_joined else ""),
            changes=tuple(
                change.filled(sparse=", sparse=True" if updates_joined else "")
                for change in (BAG_CHANGES if are_bags else CHANGES)
            ),
        ),
        edits,
        rows,
    )


def _dense_instead(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if dense gradients would save a relevant share of the step.

    One fused optimizer then updates all tables. It is for tables that cannot be joined, because their widths differ.
    """
    updates, gpu = sparse_updates(context), context.rank.gpu
    if updates is None or updates.tables < MIN_TABLES or gpu is None or not gpu.bandwidth_bytes_per_s:
        return
    dense_ns = round(1e9 * DENSE_ACCESSES * table_bytes(context) / gpu.bandwidth_bytes_per_s)
    first_ops = tuple(updates.rows.sort_values("start_ns").drop_duplicates("step")["gpu_op_id"].tolist())
    launches = round(DENSE_LAUNCHES * updates.tables)
    edits: list[Edit] = [
        TimedOps(first_ops, (dense_ns,) * len(first_ops)),
        MoreLaunches(first_ops, (launches,) * len(first_ops)),
        WithoutOps(tuple(sorted(set(updates.rows["gpu_op_id"].tolist()) - set(first_ops)))),
        WithoutWaits(tuple(call for calls in updates.waits.values() for call in calls)),
    ]
    rows, steps = updates.rows, context.work_steps
    yield from evidence_of_saved_launches(
        context,
        Advice(
            f"{updates.tables:.0f} embedding tables with sparse gradients are updated one after the other: {count_in_words(rows, steps)} and "
            f"{in_words(ms_per_step(rows, steps))} of each step",
            Action("Use", "dense gradients", ": without sparse=True, one fused optimizer updates all tables at once."),
            note="The prediction includes the memory traffic of dense gradients and of a fused Adam over all rows.",
            risk="Adam's moments and weight decay then also change rows that a step does not look up. The gradients take as much memory as the tables.",
            changes=DENSE_CHANGES,
        ),
        edits,
        rows,
    )


def _joined_updates(updates: SparseUpdates, remaining: float) -> list[Edit]:
    """Return the edits that leave the launches and waits of ``remaining`` table updates per step."""
    times = max(round(updates.tables / max(remaining, 1.0)), 1)
    removed_waits = [call for calls in updates.waits.values() for call in calls[max(len(calls) // times, 1) :]]
    return [*merged_body_edits(updates.rows, times), *([WithoutWaits(tuple(removed_waits))] if removed_waits else [])]


RULE = Rule(
    "tables-one-by-one",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="embedding tables looked up one by one"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
