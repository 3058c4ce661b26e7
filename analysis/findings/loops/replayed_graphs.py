"""Kernels that a loop launches outside the CUDA graphs that it replays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.model import Advice, Evidence
from sawtooth.analysis.run.model import Action
from sawtooth.analysis.units import in_number, in_words

MIN_GRAPH_SHARE = 0.5  # Share of the kernels. If graphs launch more, only the other kernels can still be captured.
MIN_OTHER_KERNELS = 5  # Kernels per step outside the graphs. A graph of fewer kernels saves nothing.
_LAUNCHED_KERNELS = """
SELECT count(*) FILTER (contains(c.name, 'GraphLaunch')), count(DISTINCT c.call_id) FILTER (contains(c.name, 'GraphLaunch')), count(*)
FROM step_gpu_ops g JOIN named_runtime_calls c USING (call_id) WHERE g.device = ? AND g.counted AND g.kind = 'kernel'"""
_OTHER_KERNELS = """
SELECT n.name FROM step_gpu_ops g JOIN named_runtime_calls c USING (call_id) JOIN cpu_ops o ON o.cpu_op_id = g.cpu_op_id JOIN names n ON n.name_id = o.name_id
WHERE g.device = ? AND g.counted AND g.kind = 'kernel' AND NOT contains(c.name, 'GraphLaunch') GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT 1"""


@dataclass(frozen=True)
class ReplayedGraphs:
    """Launches of CUDA graphs, and of kernels outside the graphs, per counted step."""

    graphs: float
    other_kernels: float


@once
def replayed_graphs(context: RuleContext) -> ReplayedGraphs | None:
    """Return the launched graphs and other kernels, None unless graphs launch most kernels."""
    if not context.rank.facts.graph_kernels_in_counted_steps:
        return None
    ((graph_kernels, graphs, kernels),) = context.recording.rows(_LAUNCHED_KERNELS, [context.rank.device])
    if graph_kernels <= MIN_GRAPH_SHARE * kernels:
        return None
    steps = max(len(context.rank.counted), 1)
    return ReplayedGraphs(graphs / steps, (kernels - graph_kernels) / steps)


def evidence_outside_graphs(context: RuleContext, lost_ms: float) -> Iterator[Evidence]:
    """Yield a finding if a step has at least MIN_OTHER_KERNELS kernels outside the replayed graphs."""
    replayed = replayed_graphs(context)
    if replayed is None or replayed.other_kernels < MIN_OTHER_KERNELS:
        return
    names = context.recording.rows(_OTHER_KERNELS, [context.rank.device])
    main_source = f". Most of them come from {names[0][0]}" if names else ""
    yield Evidence(
        Advice(
            f"The GPU waits {in_words(lost_ms)} of each step for launches: {in_number(replayed.graphs, 'CUDA graph')} per step, and "
            f"{in_number(replayed.other_kernels, 'kernel')} between them",
            Action(
                "Capture",
                "the kernels between the CUDA graphs as well",
                f"{main_source}. Or put more of the loop into one graph.",
            ),
            note="Not predicted: a graph cannot contain work that depends on the host, and the trace does not show which kernels do.",
            risk="Graphs need static shapes and addresses. Code that reads a GPU value must move out of the graph.",
        ),
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        confidence="low",
        severity="info",
        rows=context.gap_evidence("launch_bound"),
    )
