"""Convolutions in which cuDNN tries algorithms."""

from __future__ import annotations

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.queries.calls import Events, operators

CONVOLUTION = r"^aten::(cudnn_convolution|convolution_backward)"
SEARCHES = 12  # kernels of one convolution: it needs one to five, both gradients and layout conversions included; a search tries twenty and more
# Many kernels alone are no search: a convolution by Fourier transforms launches three for each part of its batch. A search times what it tries, so the
# host waits for the GPU inside it.
_SEARCHING = (
    "SELECT o.cpu_op_id FROM named_cpu_ops o JOIN gpu_ops g USING (cpu_op_id) "
    "WHERE regexp_matches(o.name, ?) AND g.kind = 'kernel' "
    "AND o.cpu_op_id IN (SELECT cpu_op_id FROM named_runtime_calls WHERE contains(name, 'Synchronize')) GROUP BY 1 HAVING count(*) >= ?"
)


@once
def searching_convolutions(context: RuleContext) -> Events:
    """Return the convolutions of the counted steps in which cuDNN tries algorithms."""
    if not context.recording.named(CONVOLUTION):
        return operators(context, CONVOLUTION)
    ids = [int(row[0]) for row in context.recording.rows(_SEARCHING, [CONVOLUTION, SEARCHES])]
    convolutions = operators(context, CONVOLUTION)
    return convolutions.where(convolutions.frame["id"].isin(ids))


def calls_of_searches(context: RuleContext) -> set[int]:
    """Return the calls made inside convolutions in which cuDNN tries algorithms, in any step."""
    if not context.recording.named(CONVOLUTION):
        return set()
    rows = context.recording.rows(
        f"SELECT call_id FROM runtime_calls WHERE cpu_op_id IN ({_SEARCHING})", [CONVOLUTION, SEARCHES]
    )
    return {int(row[0]) for row in rows}
