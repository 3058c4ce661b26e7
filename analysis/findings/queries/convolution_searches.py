"""Convolutions for which cuDNN benchmarks algorithms (``cudnn.benchmark``)."""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import CountedEvents, operators

CONVOLUTION = r"^aten::(cudnn_convolution|convolution_backward)"
# A convolution launches 1 to 5 kernels, including gradients and layout conversions. A search launches 20 or more.
MIN_SEARCH_KERNELS = 12
# An FFT convolution also launches many kernels. Only a search measures algorithms, so the host waits for the GPU inside the operator.
_SEARCHES = (
    "SELECT o.cpu_op_id FROM named_cpu_ops o JOIN gpu_ops g USING (cpu_op_id) "
    "WHERE regexp_matches(o.name, ?) AND g.kind = 'kernel' "
    "AND o.cpu_op_id IN (SELECT cpu_op_id FROM named_runtime_calls WHERE contains(name, 'Synchronize')) GROUP BY 1 HAVING count(*) >= ?"
)


@once
def searching_convolutions(context: RuleContext) -> CountedEvents:
    """Return the convolutions of the counted steps for which cuDNN benchmarks algorithms."""
    if not context.recording.named(CONVOLUTION):  # The query below would take longer.
        return operators(context, CONVOLUTION)
    ids = [int(row[0]) for row in context.recording.rows(_SEARCHES, [CONVOLUTION, MIN_SEARCH_KERNELS])]
    convolutions = operators(context, CONVOLUTION)
    return convolutions.where(convolutions.frame["id"].isin(ids))


def calls_of_searches(context: RuleContext) -> set[int]:
    """Return the calls inside convolutions for which cuDNN benchmarks algorithms, in all steps."""
    if not context.recording.named(CONVOLUTION):
        return set()
    rows = context.recording.rows(
        f"SELECT call_id FROM runtime_calls WHERE cpu_op_id IN ({_SEARCHES})", [CONVOLUTION, MIN_SEARCH_KERNELS]
    )
    return {int(row[0]) for row in rows}
