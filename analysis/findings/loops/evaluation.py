"""Profiled steps in which one rank alone takes longer, and whether this rank evaluates in these steps."""

from __future__ import annotations

from collections.abc import Collection

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.ranks.collectives import step_labels
from sawtooth.analysis.ranks.heatmap import RankStalls, rank_steps, stalls

# Layers of a forward pass. A layer without a sequence number records no graph for a backward pass.
_LAYERS = r"^aten::(conv[123]d|linear|layer_norm|batch_norm|scaled_dot_product_attention|embedding)$"
_EVALUATION_NAMES = r"(?i)(^|[^a-z])(eval|valid)"  # Annotations of an evaluation or validation.
_EVALUATION_EVENTS = """
SELECT t.step, count(*) FROM named_cpu_ops o ASOF JOIN (SELECT * FROM steps WHERE device = $device AND counted) t ON o.start_ns >= t.host_start_ns
WHERE o.start_ns < t.host_end_ns AND (o.kind = 'annotation' AND regexp_matches(o.name, $marked)
    OR o.kind = 'op' AND coalesce(o.sequence_number, -1) < 0 AND regexp_matches(o.name, $layers))
GROUP BY t.step"""


def alone_longer(context: RuleContext) -> RankStalls | None:
    """Return the few profiled steps in which the analysed rank takes longer while the other ranks wait.

    None in a run of one rank, or if there are no such steps.
    """
    ranks, communication = context.run.ranks, context.run.communication
    if communication is None or communication.pipeline or not len(communication.rows) or communication.heat is not None:
        return None
    numbers = [rank.rank for rank in ranks]
    position = next(i for i, rank in enumerate(ranks) if rank is context.rank)
    has_distinct_numbers = None not in numbers and len(set(numbers)) == len(numbers)
    number = numbers[position]
    return stalls(rank_steps(ranks, communication), number if has_distinct_numbers and number is not None else position)


def evaluates_in(context: RuleContext, names: Collection[str]) -> bool:
    """Return whether the counted steps called ``names`` contain more evaluation than the others.

    An evaluation has annotations named like one, or layers that record no graph for a backward pass.
    """
    steps = context.rank.steps
    numbers = set(steps.loc[step_labels(steps).isin(list(names)).to_numpy(), "step"].tolist())
    parameters = {"device": context.rank.device, "marked": _EVALUATION_NAMES, "layers": _LAYERS}
    events = dict(context.recording.cursor.execute(_EVALUATION_EVENTS, parameters).fetchall())
    other_counts = [count for step, count in events.items() if step not in numbers]
    return bool(numbers) and min(events.get(step, 0) for step in numbers) > max(other_counts, default=0)
