"""Evidence that several rules build from kernels or waits, and the edits that predict their gains.

Titles are templates: ``{cost}`` is the time per step. Each function lists its other placeholders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import MORE_THAN_LOSS, Advice, Evidence, Judgement
from sawtooth.analysis.findings.queries.calls import lost_in_calls_ms
from sawtooth.analysis.findings.queries.host_reads import calls_after_bulk_copies, ops_only_for_reads
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.knowledge.frames import readable_frame
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause, WithoutOps, WithoutWaits
from sawtooth.analysis.run.model import Confidence, Severity
from sawtooth.analysis.units import in_times, in_words, times_and_period

# Clause for a gain that is larger than the GPU's wait. After a wait the host no longer runs ahead, so later launches are late
# too.
LATE_LAUNCHES_CLAUSE = "so it no longer runs ahead of the GPU: this costs {cost} of each step"
# Share of the time lost to waits. A title mentions copies with a larger share. Copying a single number takes 1 µs, but copying a
# tensor may take most of the wait.
MIN_COPYING_SHARE = 0.05
MIN_STEPS_FOR_CHANCE = 4  # Of so many profiled steps, a single one may be unusual.
# Upper limit of the host's time to free one operator's tensors and its part of autograd's graph, on a slow host.
FREED_NS = 3_000


def kernel_evidence(
    context: RuleContext,
    rows: pd.DataFrame,
    advice: Advice,
    *,
    edits: Sequence[Edit] | None = None,
    by: Sequence[str] = ("operator",),
    confidence: Confidence = "medium",
    severity: Severity | None = None,
    host_may_stay: bool = False,
) -> Iterator[Evidence]:
    """Yield the evidence that the kernels ``rows`` (of ``RuleContext.work``) take time.

    Without ``edits``, the prediction removes these kernels. With ``host_may_stay``, their host time may remain. The title may contain
    ``{cost}``, and ``{kernels}`` for the number per step, such as "69 kernels".
    """
    steps = context.work_steps
    cost_ms = ms_per_step(rows, steps)
    if context.is_negligible(cost_ms):
        return
    yield Evidence(
        replace(advice, title=advice.title.format(cost=in_words(cost_ms), kernels=count_in_words(rows, steps))),
        lost_ms=cost_ms,
        cost_ms=cost_ms,
        edits=[WithoutOps(tuple(rows["gpu_op_id"].tolist()), host_may_stay=host_may_stay)] if edits is None else edits,
        confidence=confidence,
        severity=severity,
        rows=evidence_of(rows, steps, by),
    )


def wait_evidence(context: RuleContext, calls: tuple[int, ...], advice: Advice) -> Iterator[Evidence]:
    """Yield the evidence that the GPU is idle after the host's waits in ``calls``.

    The prediction removes these waits and the work that only serves them. The title may contain ``{times}`` (how often the
    host waits, in words), ``{place}`` (the line that loses most time), ``{cost}``, and ``{cost_clause}`` (a clause about the GPU's lost time).
    """
    lost_ms = lost_in_calls_ms(context, "host_sync", calls)
    if context.is_negligible(lost_ms):
        return
    places = context.host_locations("host_sync", calls=calls)
    rows = context.recording.rows(
        "SELECT min(start_ns) FROM gaps WHERE device = ? AND cause = 'host_sync' AND call_id IN (SELECT unnest(?::BIGINT[])) GROUP BY call_id",
        [context.rank.device, list(calls)],
    )
    times_ns = [int(start_ns) for (start_ns,) in rows]
    count, period = times_and_period(len(times_ns), max(len(context.rank.counted), 1), per_step_from=0.5)
    place = readable_frame(str(places[0]["place"])) if places else "a place the trace does not name"
    cost_clause = _cost_clause(context, calls, lost_ms)

    def with_numbers(advice: Advice, judgement: Judgement) -> Advice:
        gains_more = judgement.gains and judgement.gain_ms > MORE_THAN_LOSS * lost_ms
        title = advice.title.format(
            cost=in_words(max(judgement.gain_ms, lost_ms)),
            cost_clause=LATE_LAUNCHES_CLAUSE.format(cost=in_words(judgement.gain_ms)) if gains_more else cost_clause,
            times=f"{in_times(count)} {period}",
            place=place,
        )
        return replace(advice, title=title)

    yield Evidence(
        advice,
        lost_ms=lost_ms,
        cost_ms=lost_ms,
        edits=without_reads(context, calls),
        confidence="low" if _is_chance(context, times_ns) else "high",
        rows=places,
        reword=with_numbers,
    )


def _is_chance(context: RuleContext, times_ns: Sequence[int]) -> bool:
    """Return whether events at ``times_ns`` are in only one of several profiled steps.

    Such an event may belong to an evaluation, a log or a measurement. The profile does not show how often the run has it.
    """
    counted = context.rank.counted
    steps = {int(step) for step in counted["end_ns"].searchsorted(times_ns)}
    return len(steps) == 1 and len(counted) >= MIN_STEPS_FOR_CHANCE


def _cost_clause(context: RuleContext, calls: tuple[int, ...], lost_ms: float) -> str:
    """Return a clause about the GPU time that the waits cost: copies to the host, and idle time."""
    copying_ms = lost_in_calls_ms(context, "host_sync", calls, owner="exposed_memcpy")
    if copying_ms < MIN_COPYING_SHARE * lost_ms:
        return f"which then waits {in_words(lost_ms)} for the host"
    if copying_ms > (1 - MIN_COPYING_SHARE) * lost_ms:
        return f"which costs {in_words(lost_ms)} of each step, in which the GPU only copies"
    return f"which costs {in_words(lost_ms)} of each step: the GPU copies for {in_words(copying_ms)} and is idle for {in_words(lost_ms - copying_ms)}"


def without_reads(context: RuleContext, calls: tuple[int, ...]) -> list[Edit]:
    """Return the edits that remove the host's waits in ``calls`` and the work that only serves the reads.

    Such work is GPU operations whose results only the host reads, and the host's computation on the data of large copies.
    """
    edits: list[Edit] = [WithoutWaits(calls)]
    if read_ops := ops_only_for_reads(context, calls):
        edits.append(WithoutOps(read_ops))
        if computing_calls := calls_after_bulk_copies(context, read_ops):
            edits += [WithoutHostCause(cause, calls=computing_calls) for cause in ("python_host", "host_compute")]
    return edits


def without_freeing(context: RuleContext, removed: Sequence[int]) -> list[Edit]:
    """Return the edit without the time in which Python frees the tensors of the ``removed`` operations.

    Python frees the graph of a step outside any operator, and needs time for each operator in the graph. The edit therefore reduces
    the Python time before the other launches by the removed share of operations. The result is empty if this Python time is longer
    than FREED_NS per removed operation, because freeing is then not its cause.
    """
    rows = context.recording.rows(
        "SELECT o.call_id, sum(g.end_ns - g.start_ns) FROM gaps g JOIN gpu_ops o ON o.gpu_op_id = g.next_gpu_op_id WHERE g.device = ? "
        "AND g.cause = 'python_host' AND o.call_id IS NOT NULL AND o.gpu_op_id NOT IN (SELECT unnest(?::BIGINT[])) GROUP BY 1 ORDER BY 1",
        [context.rank.device, list(removed)],
    )
    if not rows or sum(int(ns) for _, ns in rows) > FREED_NS * len(removed):
        return []
    remaining_share = 1 - len(removed) / max(len(context.work), 1)
    return [WithoutHostCause("python_host", remaining_share, tuple(int(call) for call, _ in rows), keep_at_most=1.0)]
