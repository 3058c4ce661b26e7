"""A loop reads or writes a tensor row by row.

What it checks
    A sequence of operators that begins by selecting a row (``tensor[i]``) and repeats at least ten times, without a matrix
    product. PyTorch's own list of anti-patterns calls this "for loop indexing". A loop that looks up a table for each column is
    left out, because the rule tables-one-by-one reports it.
Why it costs time
    Every row launches each kernel again, for a few elements.
What to do
    Index with a tensor, or use a slice, ``torch.where``, ``scatter_``, ``cumsum``, or one ``torch.stack``. If the loop must
    stay, use ``torch.compile``.
When it is wrong
    Each row depends on the row before. Then only a scan, a compiled loop or a CUDA graph helps. A trace does not show which
    tensor an operator reads. If a loop combines its rows with other tensors, each row may depend on the row before. The finding
    then has low confidence.
References
    https://docs.pytorch.org/docs/stable/torch.html#indexing-slicing-joining-mutating-ops
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.loops.tables import lookups_in_a_row
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.passes import merged_body_edits, passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains

MIN_REPETITIONS = 10  # As in PyTorch's own pattern for such loops.
MAX_OPERATORS = 12  # Per repetition. A longer repetition is a step of a recurrent network.
SELECT = "aten::select"
# Elementwise operators of two tensors.
JOINING_OPERATORS = r"^aten::(?:add|sub|rsub|mul|div|pow|maximum|minimum|where|lerp|addcmul|addcdiv)_?$"
# A loop with one of these operators is no indexing loop.
COMPUTING_OPERATORS = r"^aten::(?:linear|matmul|mm|addmm|bmm|baddbmm|conv|scaled_dot_product|\w*_cell)"
_SIBLINGS = f"""
WITH counted AS (SELECT step, host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted),
looping AS (SELECT t.step, o.thread_id, o.parent_id FROM named_cpu_ops o
    JOIN counted t ON o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    WHERE o.kind = 'op' AND o.name = '{SELECT}' GROUP BY ALL HAVING count(*) >= {MIN_REPETITIONS})
SELECT l.step, o.thread_id, o.parent_id, o.cpu_op_id, o.name, regexp_matches(o.name, '{JOINING_OPERATORS}')
    AND coalesce(len(list_filter(s.input_dims::JSON[], lambda d: json_array_length(d) > 0)) >= 2, true) AS joins
    FROM looping l JOIN counted t USING (step) JOIN named_cpu_ops o ON o.thread_id = l.thread_id AND o.parent_id IS NOT DISTINCT FROM l.parent_id AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    LEFT JOIN signatures s USING (signature_id) WHERE o.kind = 'op' ORDER BY 1, 2, 3, o.start_ns, 4"""

MAY_DEPEND = "Each row is combined with another tensor. If this tensor is the result of the previous row, the rows cannot be processed together."

CHANGES = (
    CodeChange("PyTorch", "for i in range(len(x)):\n    y[i] = x[i] * weight[i]", "y = x * weight[:, None]"),
    CodeChange(
        "PyTorch",
        "for i, row in enumerate(rows):\n    out[row] += x[i]",
        "out.index_add_(0, torch.as_tensor(rows, device=x.device), x)   # a GPU adds in no fixed order",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if processing all rows at once would save a relevant share of the step."""
    if not context.recording.named(f"^{SELECT}$"):
        return
    rows = context.recording.frame(_SIBLINGS, [context.rank.device])
    computes = rows["name"].str.contains(COMPUTING_OPERATORS)
    loops: list[tuple[list[int], int]] = []
    for _, part in rows.groupby(["step", "thread_id", "parent_id"], dropna=False, sort=False):
        loops += _loops(part["name"].tolist(), part["cpu_op_id"].astype(int).tolist(), computes.loc[part.index].tolist())
    looked_up = {operator for _, operators in lookups_in_a_row(context) for operator in operators}
    loops = [(ids, repetitions) for ids, repetitions in loops if looked_up.isdisjoint(ids)]
    if not loops:
        return
    may_recur = any(_may_recur(rows[rows["cpu_op_id"].isin(ids)]) for ids, _ in loops)
    loop_work = [(passes(context, ids).both_passes, repetitions) for ids, repetitions in loops]
    edits = [edit for work, repetitions in loop_work for edit in merged_body_edits(work, repetitions)]
    work = pd.concat([work for work, _ in loop_work])
    predicted_ms = context.predict_ms(edits) if edits else None
    if predicted_ms is None or context.step_ms is None or context.is_negligible(context.step_ms - predicted_ms):
        return
    steps = context.work_steps
    yield Evidence(
        Advice(
            f"A loop indexes a tensor row by row, up to {max(times for _, times in loops)} rows at a time: {count_in_words(work, steps)} per step",
            Action("Index", "all rows at once", ": a slice, a tensor of indices, torch.where, scatter_ or index_add_."),
            note="Predicted with one iteration for all rows. The launches of the other iterations are removed."
            + (f" {MAY_DEPEND}" if may_recur else ""),
            risk="None if no row depends on the previous one.",
            changes=CHANGES,
        ),
        lost_ms=max(context.step_ms - predicted_ms, ms_per_step(work, steps)),
        edits=edits,
        confidence="low" if may_recur else "medium",
        at_most="warning" if may_recur else None,
        rows=evidence_of(work, steps, ("operator",)),
        threshold_for="gain",
    )


def _may_recur(loop: pd.DataFrame) -> bool:
    """Return whether a loop combines its selected rows with other tensors.

    A loop that only combines its n rows with each other needs n - 1 joins.
    """
    return bool(loop["joins"].sum() >= (loop["name"] == SELECT).sum())


def _loops(names: Sequence[str], ids: Sequence[int], computes: Sequence[bool]) -> list[tuple[list[int], int]]:
    """Return the loops among consecutive operators with one parent.

    Each loop has the ids of its operators and its number of repetitions.
    """
    loops, start = [], 0
    while start < len(names):
        length, repetitions = _repeated_body(names, start)
        if repetitions and not any(computes[start : start + length]):
            loops.append((list(ids[start : start + length * repetitions]), repetitions))
        start += length * repetitions or 1
    return loops


def _repeated_body(names: Sequence[str], start: int) -> tuple[int, int]:
    """Return length and repetitions of the shortest loop body at ``start``; zeros without a loop."""
    if names[start] != SELECT:
        return 0, 0
    lengths = range(1, MAX_OPERATORS + 1)
    bodies = ((length, _repetitions(names, start, length)) for length in lengths)
    return next(((length, count) for length, count in bodies if count >= MIN_REPETITIONS), (0, 0))


def _repetitions(names: Sequence[str], start: int, length: int) -> int:
    count = 1
    while names[start + count * length : start + (count + 1) * length] == names[start : start + length]:
        count += 1
    return count


RULE = Rule(
    "loop-indexing",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("launch_bound",), called="a loop over the rows of a tensor"),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)
