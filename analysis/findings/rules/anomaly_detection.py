"""Autograd's anomaly detection is left on.

What it checks
    NaN tests that autograd runs after each of its nodes: ``aten::isnan``, ``aten::_is_any_true`` and the read of the result.
    The rule also compares the host times of operators that autograd records with those of other operators.
Why it costs time
    Each gradient is read once more. The host waits for each result before it launches the next node, so the backward pass
    runs one kernel at a time. The forward pass stores a Python stack trace for every operator, in 0.1 ms or more.
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
from sawtooth.analysis.findings.model import TRACE_SOURCES, Advice, Evidence, Rule
from sawtooth.analysis.findings.policy import ONE_LINE_TO_CHANGE
from sawtooth.analysis.findings.queries.calls import lost_in_calls_ms
from sawtooth.analysis.findings.queries.host_reads import nan_checks
from sawtooth.analysis.findings.recorded.counted_operations import AUTOGRAD_NODE, evidence_of, ms_per_step
from sawtooth.analysis.replay.edits import Edit, FasterHost, WithoutCalls
from sawtooth.analysis.run.model import Action, CodeChange, Explains
from sawtooth.analysis.units import in_words, percent

# A stack trace of a few Python frames takes at least 20 µs. Autograd records an operator without a stack trace in less than 5 µs.
SHORTEST_TRACE_NS = 20_000
MAX_TRACE_SHARE = 0.95  # Largest share of the host's time that stack traces can take, because other work always remains.
# An operator's own time excludes the operators and calls inside it. The query returns the median own time of operators that
# autograd records, the median of the others, and the total extra time of the recorded operators.
_OWN_TIMES = """
WITH inside AS (SELECT o.cpu_op_id, o.parent_id, o.dur_ns, o.sequence_number, regexp_matches(o.name, 'Backward[0-9]*$') OR starts_with(o.name, $2) AS node
    FROM named_cpu_ops o JOIN steps t ON t.device = $1 AND t.counted AND o.start_ns >= t.host_start_ns AND o.start_ns < t.host_end_ns
    WHERE o.kind = 'op'),
children AS (SELECT parent_id AS cpu_op_id, sum(dur_ns) AS ns FROM inside GROUP BY 1),
calls AS (SELECT cpu_op_id, sum(dur_ns) AS ns FROM runtime_calls GROUP BY 1),
own AS (SELECT i.dur_ns - coalesce(children.ns, 0) - coalesce(calls.ns, 0) AS ns, i.sequence_number IS NOT NULL AS recorded
    FROM inside i LEFT JOIN children USING (cpu_op_id) LEFT JOIN calls USING (cpu_op_id) WHERE NOT i.node),
medians AS (SELECT median(ns) FILTER (recorded) AS recorded, median(ns) FILTER (NOT recorded) AS others FROM own)
SELECT recorded, others, (SELECT sum(greatest(own.ns - others, 0)) FROM own WHERE own.recorded) FROM medians"""
_CALLS_IN_STEPS = """
SELECT c.call_id FROM runtime_calls c JOIN steps t ON t.device = $1 AND t.counted AND c.start_ns >= t.host_start_ns AND c.start_ns < t.host_end_ns"""

CHANGES = (
    CodeChange("PyTorch", "torch.autograd.set_detect_anomaly(True)", "torch.autograd.set_detect_anomaly(False)"),
    CodeChange("Lightning", "Trainer(detect_anomaly=True)", "Trainer()"),
)


def measure(context: RuleContext) -> Iterator[Evidence]:
    """Yield a finding if autograd's NaN tests and their waits cost a relevant share of the step."""
    tests = nan_checks(context)
    rows = context.work[context.work["gpu_op_id"].isin(tests.operations)]
    cost_ms = ms_per_step(rows, context.work_steps) + lost_in_calls_ms(context, "host_sync", tests.calls)
    if not tests.calls or context.is_negligible(cost_ms):
        return
    trace_share = _stack_trace_share(context, tests.calls)
    edits: list[Edit] = [WithoutCalls(tests.calls), *([FasterHost(1 - trace_share)] if trace_share else [])]
    predicted_ms = context.predict_ms(edits)
    yield Evidence(
        Advice(
            f"Anomaly detection is on: autograd's NaN tests and their waits take {in_words(cost_ms)} of each step"
            + (f", and recording stack traces takes {percent(trace_share)} of the host's other time" if trace_share else ""),
            Action("Turn", "anomaly detection off unless you search for a NaN"),
            note="Predicted by the replay without the tests, their launches and waits, and without the extra host time of recorded operators.",
            risk="You notice a NaN only later, in the loss.",
            changes=CHANGES,
        ),
        lost_ms=max(cost_ms, context.step_ms - predicted_ms) if predicted_ms is not None and context.step_ms else cost_ms,
        cost_ms=cost_ms,
        edits=edits,
        confidence="high",
        rows=evidence_of(rows, context.work_steps),
    )


def _stack_trace_share(context: RuleContext, tests: tuple[int, ...]) -> float:
    """Return the share of the host's time outside ``tests`` that stack traces take.

    The host's time excludes the profiler's cost, because unprofiled runs make stack traces, too. The share is 0 without a
    replay, and if recorded operators take hardly longer than others.
    """
    rows = context.recording.rows(_OWN_TIMES, [context.rank.device, AUTOGRAD_NODE])
    recorded_ns, unrecorded_ns, extra_ns = rows[0] if rows else (None, None, None)
    if recorded_ns is None or unrecorded_ns is None or context.whatif is None:
        return 0.0
    if recorded_ns - unrecorded_ns < SHORTEST_TRACE_NS:
        return 0.0
    host = context.whatif.problem.host
    counted = [call for (call,) in context.recording.rows(_CALLS_IN_STEPS, [context.rank.device])]
    in_steps, in_tests = np.isin(host.call, np.array(counted, np.int64)), np.isin(host.call, np.array(tests, np.int64))
    outside_tests = in_steps & ~in_tests & (host.pred >= 0)  # A call without a predecessor has no measured gap.
    host_ns = int((host.gap + host.own)[outside_tests].sum())
    return min(float(extra_ns) / max(host_ns, 1), MAX_TRACE_SHARE)


RULE = Rule(
    "anomaly-detection",
    measure,
    reads=TRACE_SOURCES,
    explains=Explains(("launch_bound", "host_sync"), called="autograd's anomaly detection"),
    requires=("steps",),
    threshold=ONE_LINE_TO_CHANGE,
)
