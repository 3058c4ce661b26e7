"""Operators compute on CPU tensors inside the step.

What it checks
    GPU idle time while the launching thread is inside operators that compute for at least 50 µs without a GPU call (cause
    ``host_compute``). Examples are sorting, indexing, stacking, lookups and random numbers. If the operator's result is copied
    next, the rule tensors-made-on-cpu reports it.
Why it costs time
    The host launches nothing meanwhile. A few cores do work that the GPU would finish in microseconds.
What to do
    Move the tensors to the GPU before the work. Or do the work in the data loader's workers, in parallel with the training.
When it is wrong
    The operator does not run on a GPU, or the host needs its result for the next launches. Then compute the result one step
    ahead, in a thread.
References
    https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html#create-tensors-directly-on-the-target-device
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.findings.actions import function_of
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import FEW_LINES_TO_CHANGE
from sawtooth.analysis.findings.queries.copies import copies_of_made_tensors
from sawtooth.analysis.findings.recorded.source_lines import first_user_line
from sawtooth.analysis.replay.edits import MoreLaunches, WithoutHostCause
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words

CHANGES = (
    CodeChange(
        "PyTorch",
        "order = lengths.sort().indices          # lengths is on the CPU\nx = x[order].to('cuda')",
        "lengths, x = lengths.to('cuda', non_blocking=True), x.to('cuda', non_blocking=True)\nx = x[lengths.sort().indices]   # on the GPU",
    ),
    CodeChange(
        "PyTorch",
        "for rows in loader:\n    x = torch.stack([table[r] for r in rows])",
        "class Rows(Dataset):\n    def __getitem__(self, i):   # in the workers\n        return table[self.rows[i]]",
    ),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if operators on the CPU cost a relevant share of the step."""
    made_on_cpu = copies_of_made_tensors(context).frame["call_id"]
    rows = context.recording.rows(
        "SELECT o.call_id, min(o.gpu_op_id), count(DISTINCT g.cpu_op_id), sum(g.end_ns - g.start_ns) AS ns, "
        "o.call_id IN (SELECT unnest(?::BIGINT[])) AS copies_result FROM gaps g JOIN gpu_ops o ON o.gpu_op_id = g.next_gpu_op_id "
        "WHERE g.device = ? AND g.cause = 'host_compute' AND o.call_id IS NOT NULL GROUP BY o.call_id ORDER BY o.call_id",
        [made_on_cpu.astype("int64").unique().tolist(), context.rank.device],
    )
    launches = [
        (int(call), int(op), int(operators), int(ns)) for call, op, operators, ns, copies_result in rows if not copies_result
    ]
    all_ns = sum(int(ns) for _, _, _, ns, _ in rows)
    lost_ms = context.lost_ms("host_compute") * sum(ns for *_, ns in launches) / all_ns if all_ns else 0.0
    if not lost_ms or context.is_negligible(lost_ms):
        return
    places = context.host_locations("host_compute")
    line = first_user_line(places)
    place = f", {line}" if line else f", most in {places[0]['place']}" if places else ""
    function = function_of(str(places[0]["place"])) if places else None
    yield Evidence(
        Advice(
            f"Operators on CPU tensors delay the launches for {in_words(lost_ms)} of each step{place}",
            Action(
                "Move",
                f"the work of {function}() to the GPU" if function else "the tensors to the GPU first",
                ", or do it in the data loader's workers."
                + ("" if line else " Record once with with_stack=True to see the line."),
            ),
            note="Predicted by the replay without the operators' time, with one more launch per operator.",
            risk="Random numbers on the GPU differ. Values that the host needs next must be copied back.",
            changes=(*_change_of_function(function), *CHANGES),
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=[
            WithoutHostCause("host_compute", calls=tuple(call for call, *_ in launches)),
            MoreLaunches(tuple(op for _, op, _, _ in launches), tuple(operators for _, _, operators, _ in launches)),
        ],
        confidence="high",
        rows=context.gap_evidence("host_compute"),
    )


def _change_of_function(name: str | None) -> tuple[CodeChange, ...]:
    """Return the change to calls of the function ``name``, which has most of the work; empty if unknown."""
    if name is None:
        return ()
    before = f"x = {name}(batch).cuda()   # computes on the CPU"
    after = (
        f"x = {name}(batch.cuda(non_blocking=True))   # on the GPU; move what it uses there once, such as filters and tables"
    )
    return (CodeChange("PyTorch", before, after, of_run=True),)


RULE = Rule(
    "operators-on-cpu",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("host_compute",), called="operators on CPU tensors"),
    requires=("steps",),
    threshold=FEW_LINES_TO_CHANGE,
)
