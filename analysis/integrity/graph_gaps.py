"""Check that CUDA graphs have no long gaps between their operations.

The GPU launches the operations of a graph itself, so no host delays them. Long gaps show that operations were not recorded. If an
operation is missing from every launch of a graph, nothing else shows it, because a graph has no known size.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.times import OF_DEVICE_TIME
from sawtooth.analysis.store.library import Recording
from sawtooth.analysis.units import in_words, percent

LONG_NS = 2_000  # Within a graph: in 6 of 7 intact traces with graphs no gap is longer than 1 µs.
LONG_AFTER_NS = 20_000  # After a graph, if the next launch was already queued: at most 12 µs in these traces.
MAX_GAP_SHARE = 0.07  # Limit for gaps within graphs, as a share of the graphs' own time. In the seventh trace it is 5.9 %.
SHARE_AFTER = 0.03  # The same limit for gaps after graphs. The intact traces have no such gaps.
# Only gaps of the whole device count: another stream of the graph may be busy, or a graph may wait for work outside.
_GAPS = f"""WITH graphs AS (SELECT call_id FROM runtime_calls WHERE name_id IN (SELECT unnest($launches::INTEGER[]))),
ops AS (SELECT g.start_ns, g.dur_ns, graphs.call_id, c.start_ns + c.dur_ns AS launched_ns,
        max(g.start_ns + g.dur_ns) OVER (ORDER BY g.start_ns, g.gpu_op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns,
        lag(graphs.call_id) OVER (ORDER BY g.start_ns, g.gpu_op_id) AS before_call
    FROM gpu_ops g LEFT JOIN graphs USING (call_id) LEFT JOIN runtime_calls c ON c.call_id = g.call_id
    WHERE g.device = $device),
gaps AS (SELECT *, start_ns - before_ns AS ns FROM ops)
SELECT count(*) FILTER (within OR after), coalesce(sum(ns) FILTER (within), 0), coalesce(sum(ns) FILTER (after), 0),
    coalesce(sum(dur_ns) FILTER (call_id IS NOT NULL), 0)
FROM (SELECT *, call_id = before_call AND ns > {LONG_NS} AS within,
    before_call <> call_id AND launched_ns < before_ns AND ns > {LONG_AFTER_NS} AS after FROM gaps)"""
EFFECTS: dict[str, Effect] = OF_DEVICE_TIME | {"kernel_launches_per_step": "least"}
ADVICE = "Record again with a newer driver, or with `nsys profile --cuda-graph-trace=node`, to see what is missing."


def checks(recording: Recording, device: int) -> Iterator[FailedCheck]:
    """Yield the failed check if the GPU often waits within the graphs of a device."""
    launches = recording.named("GraphLaunch")
    if not launches:
        return
    gaps, within_ns, after_ns, busy_ns = (
        int(number) for number in recording.rows(_GAPS, {"device": device, "launches": launches})[0]
    )
    if within_ns > MAX_GAP_SHARE * busy_ns or after_ns > SHARE_AFTER * busy_ns:
        ns = within_ns + after_ns
        sentence = (
            f"The GPU waits {gaps:,} times within or after CUDA graphs, {in_words(ns / 1e6)} in all ({percent(ns / busy_ns)} of the graphs' work). No host "
            "delays it there, so some of the graphs' kernels were not recorded."
        )
        yield FailedCheck("graph_gaps", gaps, sentence, ADVICE, evidence=("gpu_records",), effects=EFFECTS)
