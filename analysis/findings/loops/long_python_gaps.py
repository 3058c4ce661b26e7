"""Long gaps in which the GPU waits for a launch while Python runs outside operators."""

from __future__ import annotations

from collections.abc import Sequence

from sawtooth.analysis.findings.context import RuleContext, once

MIN_GAP_NS = 300_000  # Launching from Python leaves gaps of 5 to 50 µs, so a gap of 300 µs contains other work.
# In the backward pass and in the optimizer. Users cannot avoid that autograd changes threads and that optimizers sort tensors.
MIN_GAP_IN_PYTORCH_NS = 1_000_000
# Share of a profiled step's host time. Every loop has long gaps that users cannot remove: Python frees the graph and the gradients of
# the step before, and an optimizer's Python code handles each parameter. Both grow with the step. In ten loops on an H200's host with
# no other work, the gaps outside PyTorch took 1.8 to 2.5 % of a step, and those in the backward pass and the optimizer 3.2 to 5.2 %.
ORDINARY_SHARE = 0.04
ORDINARY_SHARE_IN_PYTORCH = 0.08
_LONG_GAPS = """
WITH waiting AS (SELECT next_gpu_op_id AS gpu_op_id, sum(end_ns - start_ns) AS ns, bool_or(phase IN ('backward', 'optimizer')) AS in_pytorch
    FROM gaps WHERE device = $device AND cause = 'python_host' GROUP BY next_gpu_op_id),
long_gaps AS (SELECT call_id, ns, in_pytorch, step, t.host_end_ns - t.host_start_ns AS step_ns
    FROM waiting JOIN gpu_ops USING (gpu_op_id) LEFT JOIN gpu_op_steps USING (gpu_op_id) LEFT JOIN steps t USING (device, step)
    WHERE call_id IS NOT NULL AND ns >= if(in_pytorch, $in_pytorch_ns, $outside_ns)),
typical AS (SELECT median(host_end_ns - host_start_ns) AS step_ns FROM steps WHERE device = $device AND counted)
SELECT call_id, ns, step FROM long_gaps, typical
QUALIFY step IS NULL OR sum(ns) OVER (PARTITION BY step, in_pytorch)
    > if(in_pytorch, $share_in_pytorch, $share) * least(long_gaps.step_ns, typical.step_ns) ORDER BY call_id"""
_CALLS_IN_GAPS = """
SELECT c.call_id FROM runtime_calls c ASOF JOIN (SELECT l.thread_id, l.start_ns AS end_ns, min(g.start_ns) AS start_ns
    FROM gaps g JOIN gpu_ops o ON o.gpu_op_id = g.next_gpu_op_id JOIN runtime_calls l ON l.call_id = o.call_id
    WHERE g.device = ? AND list_contains(?::BIGINT[], l.call_id) GROUP BY ALL) w ON c.thread_id = w.thread_id AND c.start_ns <= w.end_ns
WHERE c.start_ns >= w.start_ns ORDER BY c.call_id"""


@once
def long_python_gaps(context: RuleContext) -> list[tuple[int, int, int | None]]:
    """Return for each long gap the launching call that ends it, the gap's ns, and the launched step.

    If a step's gaps together are as short as those of a step without other Python work, they do not count.
    """
    rows = context.recording.rows(
        _LONG_GAPS,
        {
            "device": context.rank.device,
            "in_pytorch_ns": MIN_GAP_IN_PYTORCH_NS,
            "outside_ns": MIN_GAP_NS,
            "share": ORDINARY_SHARE,
            "share_in_pytorch": ORDINARY_SHARE_IN_PYTORCH,
        },
    )
    return [(int(call), int(ns), step) for call, ns, step in rows]


def calls_in_gaps(context: RuleContext, ends: Sequence[int]) -> tuple[int, ...]:
    """Return the launching calls ``ends`` and the calls in the gaps that they end.

    Python may also work before a call that launches nothing, such as a synchronization or the return of memory.
    """
    rows = context.recording.rows(_CALLS_IN_GAPS, [context.rank.device, list(ends)])
    return tuple(sorted({*ends, *(int(call) for (call,) in rows)}))
