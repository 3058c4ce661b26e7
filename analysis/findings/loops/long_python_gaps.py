"""Long gaps in which the GPU waits for a launch while Python runs outside operators."""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext, once

MIN_GAP_NS = 300_000  # Launching from Python leaves gaps of 5 to 50 µs, so a gap of 300 µs contains other work.
# In the backward pass and in the optimizer. Users cannot avoid that autograd changes threads and that optimizers sort tensors.
MIN_GAP_IN_PYTORCH_NS = 1_000_000


@once
def long_python_gaps(context: RuleContext) -> list[tuple[int, int, int | None]]:
    """Return for each long gap the launching call that ends it, the gap's ns, and the launched step."""
    rows = context.recording.rows(
        "WITH long_gaps AS (SELECT next_gpu_op_id AS gpu_op_id, sum(end_ns - start_ns) AS ns FROM gaps WHERE device = ? AND cause = 'python_host' "
        "GROUP BY next_gpu_op_id HAVING ns >= if(bool_or(phase IN ('backward', 'optimizer')), ?, ?)) "
        "SELECT call_id, ns, step FROM long_gaps JOIN gpu_ops USING (gpu_op_id) LEFT JOIN gpu_op_steps USING (gpu_op_id) WHERE call_id IS NOT NULL ORDER BY call_id",
        [context.rank.device, MIN_GAP_IN_PYTORCH_NS, MIN_GAP_NS],
    )
    return [(int(call), int(ns), step) for call, ns, step in rows]
