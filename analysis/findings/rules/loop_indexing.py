"""A loop reads or writes a tensor row by row.

What it checks
    At least ten consecutive repetitions of the same operators that each begin by selecting a row (``tensor[i]``), without a
    matrix product. This is "for loop indexing" in PyTorch's own list of anti-patterns.
Why it costs time
    Every row launches each kernel again, for a few elements.
What to do
    Index with a tensor, or use a slice, ``torch.where``, ``scatter_``, ``cumsum``, or one ``torch.stack``. If the loop must
    stay, use ``torch.compile``.
When it is wrong
    Each row depends on the row before. Then only a scan, a compiled loop or a CUDA graph helps. A trace does not show which
    tensor an operator reads. If a loop combines its rows with other tensors, it may be such a recurrence, and the finding has
    low confidence.
References
    https://docs.pytorch.org/docs/stable/torch.html#indexing-slicing-joining-mutating-ops
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES
from sawtooth.analysis.findings.queries.passes import at_once, passes
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.run.model import Action, CodeChange, Explains

FEWEST = 10  # Repetitions of the operators. PyTorch's own pattern for such loops also needs ten.
LONGEST = 12  # Operators of one repetition. A longer body is a step of a recurrent network.
SELECT = "aten::select"
# Elementwise operators of two tensors.
JOINS = r"^aten::(?:add|sub|rsub|mul|div|pow|maximum|minimum|where|lerp|addcmul|addcdiv)_?$"
# A loop with these operators computes, so it is not an indexing loop.
HEAVY = r"^aten::(?:linear|matmul|mm|addmm|bmm|baddbmm|conv|scaled_dot_product|\w*_cell)"
_SIBLINGS = f"""
WITH counted AS (SELECT step, host_start_ns, host_end_ns FROM steps WHERE device = ? AND counted),
looping AS (SELECT t.step, o.thread_id, o.parent_id FROM named_cpu_ops o
    JOIN counted t ON o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    WHERE o.kind = 'op' AND o.name = '{SELECT}' GROUP BY ALL HAVING count(*) >= {FEWEST})
SELECT l.step, o.thread_id, o.parent_id, o.cpu_op_id, o.name, regexp_matches(o.name, '{JOINS}')
    AND coalesce(len(list_filter(s.input_dims::JSON[], lambda d: json_array_length(d) > 0)) >= 2, true) AS joins
    FROM looping l JOIN counted t USING (step) JOIN named_cpu_ops o ON o.thread_id = l.thread_id AND o.parent_id IS NOT DISTINCT FROM l.parent_id AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    LEFT JOIN signatures s USING (signature_id) WHERE o.kind = 'op' ORDER BY 1, 2, 3, o.start_ns, 4"""

MAY_DEPEND = "Each row is combined with another tensor: if that is the result of the previous row, the rows cannot be processed together."

CHANGES = (
    CodeChange("PyTorch", "for i in range(len(x)):\n    y[i] = x[i] * weight[i]", "y = x * weight[:, None]"),
    CodeChange(
        "PyTorch",
        "for i, row in enumerate(rows):\n    out[row] += x[i]",
        "out.index_add_(0, torch.as_tensor(rows, device=x.device), x)   # on a GPU in no fixed order",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if running such loops at once would save a relevant share of the step."""
    if not context.recording.named(f"^{SELECT}$"):
        return
    rows = context.recording.frame(_SIBLINGS, [context.rank.device])
    heavy = rows["name"].str.contains(HEAVY)
    loops: list[tuple[list[int], int]] = []
    for _, part in rows.groupby(["step", "thread_id", "parent_id"], dropna=False, sort=False):
        loops += _loops(part["name"].tolist(), part["cpu_op_id"].astype(int).tolist(), heavy.loc[part.index].tolist())
    if not loops:
        return
    recurrence = any(_may_recur(rows[rows["cpu_op_id"].isin(ids)]) for ids, _ in loops)
    launched = [(passes(context, ids).both, times) for ids, times in loops]
    edits = [edit for work, times in launched for edit in at_once(work, times)]
    work = pd.concat([rows for rows, _ in launched])
    predicted = context.predict_ms(edits) if edits else None
    if predicted is None or context.step_ms is None or context.is_trifle(context.step_ms - predicted):
        return
    steps = context.work_steps
    yield Evidence(
        Advice(
            f"A loop indexes a tensor row by row, up to {max(times for _, times in loops)} rows at a time: {count_in_words(work, steps)} per step",
            Action("Index", "all rows at once", ": a slice, a tensor of indices, torch.where, scatter_ or index_add_."),
            note="Predicted with one iteration that does the work of all rows. The launches of the other iterations are removed."
            + (f" {MAY_DEPEND}" if recurrence else ""),
            risk="None if no row depends on the previous one.",
            changes=CHANGES,
        ),
        lost_ms=max(context.step_ms - predicted, ms_per_step(work, steps)),
        edits=edits,
        confidence="low" if recurrence else "medium",
        at_most="warning" if recurrence else None,
        rows=evidence_of(work, steps, ("operator",)),
        threshold_for="gain",
    )


def _may_recur(loop: pd.DataFrame) -> bool:
    """Return whether a loop combines its selected rows with other tensors.

    Joining n rows into one needs only n - 1 joins.
    """
    return bool(loop["joins"].sum() >= (loop["name"] == SELECT).sum())


def _loops(names: Sequence[str], ids: Sequence[int], heavy: Sequence[bool]) -> list[tuple[list[int], int]]:
    """Return the loops among consecutive operators with one parent.

    Each loop has the ids of its operators and its number of repetitions.
    """
    loops, at = [], 0
    while at < len(names):
        body = next((n for n in range(1, LONGEST + 1) if names[at] == SELECT and _repeats(names, at, n) >= FEWEST), 0)
        times = _repeats(names, at, body) if body else 0
        if times and not any(heavy[at : at + body]):
            loops.append((list(ids[at : at + body * times]), times))
        at += body * times or 1
    return loops


def _repeats(names: Sequence[str], at: int, body: int) -> int:
    times = 1
    while names[at + times * body : at + (times + 1) * body] == names[at : at + body]:
        times += 1
    return times


RULE = Rule(
    "loop-indexing",
    measure,
    reads=OF_TRACE,
    explains=Explains(("launch_bound",), called="a loop over the rows of a tensor"),
    requires=("steps",),
    threshold=FEW_LINES,
)
