"""Waits of the host that no CUDA graph can contain, and the evidence that they come before a graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sawtooth.analysis.findings.builders import without_reads
from sawtooth.analysis.findings.context import RuleContext, once
from sawtooth.analysis.findings.judging import WARNING_SHARE
from sawtooth.analysis.findings.loops.replayed_graphs import replayed_graphs
from sawtooth.analysis.findings.model import Advice, Evidence
from sawtooth.analysis.findings.policy import OTHER_CODE
from sawtooth.analysis.findings.queries.copies import checkpoint_calls, copies, waits_for_copies
from sawtooth.analysis.findings.queries.host_reads import MASK_OPERATORS, SINGLE_VALUE_READS, nan_checks, waiting_calls
from sawtooth.analysis.replay.edits import AsGraph
from sawtooth.analysis.run.model import may_gain_nothing

COALESCING_OPERATORS = "^aten::_?coalesce$"  # The host waits for the number of different rows of a sparse gradient.
TO_HOST = "(?i)DtoH|DeviceToHost"
COST_NOTE = "The cost of these waits is not predicted. In the profile the host is late and waits little, but in the run it may wait longer."
_CALLS_IN_COUNTED_STEPS = (
    "SELECT c.call_id FROM runtime_calls c ASOF JOIN (SELECT * FROM steps WHERE device = ? AND counted) t ON c.start_ns >= t.host_start_ns "
    "WHERE c.start_ns < t.host_end_ns AND c.call_id IN (SELECT unnest(?::BIGINT[])) AND c.name_id IN "
    "(SELECT name_id FROM names WHERE contains(name, 'Synchronize'))"
)


@once
def mask_waits(context: RuleContext) -> frozenset[int]:
    """Return the waits for the size of a result, such as that of a boolean mask."""
    return frozenset(waiting_calls(context, MASK_OPERATORS))


@once
def coalescing_waits(context: RuleContext) -> frozenset[int]:
    """Return the waits for the number of rows of sparse gradients."""
    return frozenset(waiting_calls(context, COALESCING_OPERATORS))


@once
def read_waits(context: RuleContext) -> frozenset[int]:
    """Return the waits in which the host reads values: single values, and tensors that it copies.

    Masks, sparse gradients, anomaly detection and checkpoints are left out, because other rules report them.
    """
    copying_calls = [int(call) for call in copies(context, TO_HOST).frame["call_id"].dropna()]
    waits = {*waiting_calls(context, SINGLE_VALUE_READS), *waits_for_copies(context, copying_calls)}
    return frozenset(
        waits
        - mask_waits(context)
        - coalescing_waits(context)
        - set(nan_checks(context).calls)
        - set(checkpoint_calls(context))
    )


def waits_per_step(context: RuleContext, calls: Iterable[int]) -> float:
    """Return the number of synchronizations among ``calls`` in a counted step."""
    rows = context.recording.rows(_CALLS_IN_COUNTED_STEPS, [context.rank.device, sorted(calls)])
    return len(rows) / max(len(context.rank.counted), 1)


@once
def waits_matter_to_a_graph(context: RuleContext) -> bool:
    """Return whether one graph per step would gain so much that the step's waits matter.

    Waits at the end of a step matter too, because code that reads a value stops the capture anywhere in the step.
    """
    if replayed_graphs(context) is not None:
        return False  # The loop already replays graphs.
    one_graph_ms, several_graphs_ms = (context.predict_ms([AsGraph(waits_stay=stay)]) for stay in (False, True))
    if one_graph_ms is None or several_graphs_ms is None or context.step_ms is None:
        return False
    if context.share(several_graphs_ms - one_graph_ms) >= WARNING_SHARE:
        return True
    shares = (context.share(context.lost_ms("launch_bound")), context.share(context.step_ms - one_graph_ms))
    return min(shares) >= OTHER_CODE.share


def evidence_before_a_graph(context: RuleContext, calls: Iterable[int], advice: Advice) -> Iterator[Evidence]:
    """Yield the evidence on waits that cost little in the profile but prevent a CUDA graph.

    The profiled host is late anyway, so that it waits little. The title may contain ``{times}``, the waits per step in words.
    """
    waits = tuple(sorted(calls))
    times = waits_per_step(context, waits)
    if round(times) < 1 or not waits_matter_to_a_graph(context):
        return
    yield Evidence(
        Advice(
            advice.title.format(times=times_in_words(times)),
            advice.action,
            note=COST_NOTE,
            risk=advice.risk,
            changes=advice.changes,
        ),
        edits=without_reads(context, waits),
        severity="warning",
        withholds_gain=True,
    )


def times_in_words(times: float) -> str:
    """Return the words for a number of times per step."""
    return "once" if round(times) == 1 else f"{times:.0f} times"


def alone_or_before_a_graph(
    context: RuleContext, alone: Sequence[Evidence], before_graph: Iterable[Evidence]
) -> Iterator[Evidence]:
    """Yield the evidence ``alone`` if it surely gains or no other exists, else that of ``before_graph``."""
    if any(_surely_gains(context, evidence) for evidence in alone):
        yield from alone
    else:
        yield from list(before_graph) or alone


def _surely_gains(context: RuleContext, evidence: Evidence) -> bool:
    """Return whether the change of ``evidence`` has a sure and noticeable gain alone."""
    gain_ms = context.step.gain_ms(evidence.edits)
    predicted_range = context.predict_range_ms(evidence.edits)
    _, high_ms = context.step.range_of_another_run_ms(evidence.edits, predicted_range)
    if gain_ms is None or high_ms is None or context.step_ms is None:
        return False
    return context.share(gain_ms) >= WARNING_SHARE and not may_gain_nothing(high_ms, context.step_ms)
