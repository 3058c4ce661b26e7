"""Autograd's anomaly detection is left on.

What it checks
    NaN tests that autograd runs after each of its nodes: ``aten::isnan``, ``aten::_is_any_true`` and the read of the result. It
    also checks how much longer operators that autograd records take on the host than the others.
Why it costs time
    Each gradient is read once more. The host waits for each result before it launches the next node, so the backward pass
    runs one kernel at a time. The forward pass stores a Python stack trace for every operator, which takes 0.1 ms or more
    each.
What to do
    Remove ``torch.autograd.set_detect_anomaly(True)`` (Lightning: ``detect_anomaly``), or turn it on only to find a NaN.
When it is wrong
    You are looking for a NaN at the moment.
References
    https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import OF_TRACE, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE
from sawtooth.analysis.findings.queries.calls import lost_in_calls
from sawtooth.analysis.findings.queries.host_reads import nan_checks
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE, evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import Edit, FasterHost, WithoutCalls
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words, percent

# A stack trace of a few Python frames takes at least 20 µs, and usually 100 µs or more. Recording without one takes less than 5 µs.
SHORTEST_TRACE_NS = 20_000
MAX_TRACE_SHARE = 0.95  # Largest share of the host's time that stack traces can take, because other work always remains.
# Own time of operators (without the operators and calls inside them), with and without recording by autograd. The query
# returns both medians, and the total extra time of the recorded operators.
_OWN_TIME = """
WITH inside AS (SELECT o.cpu_op_id, o.parent_id, o.dur_ns, o.sequence_number, regexp_matches(o.name, 'Backward[0-9]*$') OR starts_with(o.name, $2) AS node
    FROM named_cpu_ops o JOIN steps t ON t.device = $1 AND t.counted AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    WHERE o.kind = 'op'),
children AS (SELECT parent_id AS cpu_op_id, sum(dur_ns) AS ns FROM inside GROUP BY 1),
calls AS (SELECT cpu_op_id, sum(dur_ns) AS ns FROM runtime_calls GROUP BY 1),
own AS (SELECT i.dur_ns - coalesce(children.ns, 0) - coalesce(calls.ns, 0) AS ns, i.sequence_number IS NOT NULL AS recorded
    FROM inside i LEFT JOIN children USING (cpu_op_id) LEFT JOIN calls USING (cpu_op_id) WHERE NOT i.node),
medians AS (SELECT median(ns) FILTER (recorded) AS recorded, median(ns) FILTER (NOT recorded) AS others FROM own)
SELECT recorded, others, (SELECT sum(greatest(own.ns - others, 0)) FROM own WHERE own.recorded) FROM medians"""
_CALLS = """
SELECT c.call_id FROM runtime_calls c JOIN steps t ON t.device = $1 AND t.counted AND c.start_ns >= t.host_start_ns AND c.start_ns < t.host_end_ns"""

CHANGES = (
    CodeChange("PyTorch", "torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(False)"),
    CodeChange("Lightning", "Trainer(detect_anomaly=True)", "Trainer()"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if autograd's NaN tests and their waits cost a relevant share of the step."""
    tests = nan_checks(context)
    rows = context.work[context.work["gpu_op_id"].isin(tests.operations)]
    cost = ms_per_step(rows, context.work_steps) + lost_in_calls(context, "host_sync", tests.calls)
    if not tests.calls or context.is_trifle(cost):
        return
    stacks = _stack_traces(context, tests.calls)
    edits: list[Edit] = [WithoutCalls(tests.calls), *([FasterHost(1 - stacks)] if stacks else [])]
    predicted = context.predict_ms(edits)
    yield Evidence(
        Advice(
            f"Anomaly detection is on: autograd's NaN tests and their waits take {in_words(cost)} of each step"
            + (f", and stack traces {percent(stacks)} of the host's other time" if stacks else ""),
            Action("Turn", "anomaly detection off unless you search for a NaN"),
            note="Predicted by the replay without the tests, their launches and waits, and without the extra host time of recorded operators.",
            risk="You notice a NaN only later, in the loss.",
            changes=CHANGES,
        ),
        lost_ms=max(cost, context.step_ms - predicted) if predicted is not None and context.step_ms else cost,
        cost_ms=cost,
        edits=edits,
        confidence="high",
        rows=evidence_of(rows, context.work_steps),
    )


def _stack_traces(context: RuleContext, tests: tuple[int, ...]) -> float:
    """Return the share of the host's time outside ``tests`` that stack traces take.

    The host's time is taken without the profiler's overhead, because stack traces are also made in unprofiled runs. The share
    is 0 without a replay, and if recorded operators take hardly longer than others.
    """
    rows = context.recording.rows(_OWN_TIME, [context.rank.device, AUTOGRAD_NODE])
    recorded, unrecorded, ns = rows[0] if rows else (None, None, None)
    if recorded is None or unrecorded is None or recorded - unrecorded < SHORTEST_TRACE_NS or context.whatif is None:
        return 0.0
    host = context.whatif.problem.host
    counted = [call for (call,) in context.recording.rows(_CALLS, [context.rank.device])]
    in_steps, in_tests = np.isin(host.call, np.array(counted, np.int64)), np.isin(host.call, np.array(tests, np.int64))
    outside_tests = in_steps & ~in_tests & (host.pred >= 0)  # a call without a predecessor has no measured gap
    return min(float(ns) / max(int((host.gap + host.own)[outside_tests].sum()), 1), MAX_TRACE_SHARE)


RULE = Rule(
    "anomaly-detection",
    measure,
    reads=OF_TRACE,
    explains=Explains(("launch_bound", "host_sync"), called="autograd's anomaly detection"),
    requires=("steps",),
    threshold=ONE_LINE,
)
