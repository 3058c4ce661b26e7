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

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.tables import lookups_in_a_row
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.passes import evidence_of_saved_launches, merged_body_edits, passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

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
    loops = [(tables, passes(context, operators)) for tables, operators in lookups_in_a_row(context)]
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


RULE = Rule(
    "tables-one-by-one",
    measure,
    reads=TRACE_SOURCES | {"shapes"},
    explains=Explains(("launch_bound",), called="embedding tables looked up one by one"),
    requires=("steps", "shapes"),
    threshold=OTHER_CODE,
)
