"""Evidence that several rules build from kernels or waits, and the edits that predict their gains.

Titles are templates: ``{cost}`` is the time per step. Each function lists its other placeholders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pandas as pd

from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.model import MORE_THAN_LOSS, Advice, Evidence, Judgement
from sawtooth.analysis.findings.queries.calls import lost_in_calls
from sawtooth.analysis.findings.queries.host_reads import calls_after_bulk_copies, ops_serving_only
from sawtooth.analysis.findings.recorded.counted_operations import count_in_words, evidence_of, ms_per_step
from sawtooth.analysis.findings.recorded.source_lines import readable_frame
from sawtooth.analysis.replay.edits import Edit, WithoutHostCause, WithoutOps, WithoutWaits
from sawtooth.analysis.run.model import Confidence, Severity
from sawtooth.analysis.units import in_words

# For a gain that exceeds the GPU's wait at this place: the host no longer runs ahead of the GPU, so later launches are late too.
HEAD_START_LOST = "so it no longer runs ahead of the GPU: this costs {cost} of each step"
# Copies are mentioned from this share of the time lost to waits. Copying a single number takes 1 µs; copying a tensor may take
# most of the wait.
MIN_COPYING_SHARE = 0.05
# Upper limit, on a slow host, of the time to free the tensors of one kernel's operator and its part of autograd's graph.
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

    The prediction replays ``edits``. If they are None, it removes these kernels; ``host_may_stay`` means that the change may keep
    their host time. The title may contain ``{cost}``, and ``{kernels}`` for their number per step, such as "69 kernels".
    """
    steps = context.work_steps
    cost = ms_per_step(rows, steps)
    if context.is_trifle(cost):
        return

    yield Evidence(
        replace(advice, title=advice.title.format(cost=in_words(cost), kernels=count_in_words(rows, steps))),
        lost_ms=cost,  # only the kernels' own time
        cost_ms=cost,
        edits=[WithoutOps(tuple(rows["gpu_op_id"].tolist()), host_may_stay=host_may_stay)] if edits is None else edits,
        confidence=confidence,
        severity=severity,
        rows=evidence_of(rows, steps, by),
    )


def wait_evidence(context: RuleContext, calls: tuple[int, ...], advice: Advice) -> Iterator[Evidence]:
    """Yield the evidence that the GPU is idle after the host's waits in ``calls``.

    The prediction removes these waits and the GPU operations that are only needed for them. The title may contain ``{times}``
    (waits per step in words), ``{place}`` (the line that loses most time), ``{cost}``, and ``{cost_clause}`` (a clause about the
    GPU's lost time).
    """
    lost = lost_in_calls(context, "host_sync", calls)
    if context.is_trifle(lost):
        return
    places = context.places("host_sync", calls=calls)
    waits_in_gaps = context.recording.rows(
        "SELECT count(DISTINCT call_id) FROM gaps WHERE device = ? AND cause = 'host_sync' AND call_id IN (SELECT unnest(?::BIGINT[]))",
        [context.rank.device, list(calls)],
    )[0][0]
    count = waits_in_gaps / max(len(context.rank.counted), 1)
    place = readable_frame(str(places[0]["place"])) if places else "a place the trace does not name"
    cost_clause = _cost_clause(context, calls, lost)

    def named(advice: Advice, judgement: Judgement) -> Advice:
        gains_more = judgement.gains and judgement.gain_ms > MORE_THAN_LOSS * lost
        title = advice.title.format(
            cost=in_words(max(judgement.gain_ms, lost)),
            cost_clause=HEAD_START_LOST.format(cost=in_words(judgement.gain_ms)) if gains_more else cost_clause,
            times="once" if round(count) == 1 else f"{count:.0f} times",
            place=place,
        )
        return replace(advice, title=title)

    yield Evidence(
        advice, lost_ms=lost, cost_ms=lost, edits=without_reads(context, calls), confidence="high", rows=places, reword=named
    )


def _cost_clause(context: RuleContext, calls: tuple[int, ...], lost: float) -> str:
    """Return a clause about the GPU time that the waits cost, with copies to the host and idle time apart."""
    copying = lost_in_calls(context, "host_sync", calls, owner="exposed_memcpy")
    if copying < MIN_COPYING_SHARE * lost:
        return f"which then waits {in_words(lost)} for the host"
    if copying > (1 - MIN_COPYING_SHARE) * lost:
        return f"which costs {in_words(lost)} of each step, in which the GPU only copies"
    return f"which costs {in_words(lost)} of each step: the GPU copies for {in_words(copying)} and is idle for {in_words(lost - copying)}"


def without_reads(context: RuleContext, calls: tuple[int, ...]) -> list[Edit]:
    """Return the edits that remove the host's waits in ``calls`` and the work done only for them.

    This work is GPU operations whose results only the host reads, and the host's computation on data that it copied in bulk.
    """
    edits: list[Edit] = [WithoutWaits(calls)]
    if served := ops_serving_only(context, calls):
        edits.append(WithoutOps(served))
        if after := calls_after_bulk_copies(context, served):
            edits += [WithoutHostCause(cause, calls=after) for cause in ("python_host", "host_compute")]
    return edits


def without_freeing(context: RuleContext, removed: Sequence[int]) -> list[Edit]:
    """Return the edit without the time in which Python frees the tensors of the ``removed`` operations.

    Python frees a step's graph at once, outside any operator, and needs time for each operator in it. The edit therefore reduces
    the Python time before the other launches by the removed share of operations. If this Python time is longer than FREED_NS per
    removed operation, freeing is not its cause, and the result is empty.
    """
    rows = context.recording.rows(
        "SELECT o.call_id, sum(g.end_ns - g.start_ns) FROM gaps g JOIN gpu_ops o ON o.gpu_op_id = g.next_gpu_op_id WHERE g.device = ? "
        "AND g.cause = 'python_host' AND o.call_id IS NOT NULL AND o.gpu_op_id NOT IN (SELECT unnest(?::BIGINT[])) GROUP BY 1 ORDER BY 1",
        [context.rank.device, list(removed)],
    )
    if not rows or sum(int(ns) for _, ns in rows) > FREED_NS * len(removed):
        return []
    stays = 1 - len(removed) / max(len(context.work), 1)
    return [WithoutHostCause("python_host", stays, tuple(int(call) for call, _ in rows), keep_at_most=1.0)]
