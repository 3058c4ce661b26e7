"""Check that ranges of data loading end: otherwise all later work of the host looks like loading."""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import Effect, FailedCheck
from sawtooth.analysis.integrity.lost_records import OF_GPU_RECORDS, OF_STEP_TIME
from sawtooth.analysis.knowledge.host_names import DATA_MARK
from sawtooth.analysis.store.library import Recording

# The end of a range was not recorded if this many later ranges of its name begin inside it. One is usual: a loader may wrap another one.
MIN_RANGES_INSIDE = 2
_UNENDED = f"""SELECT count(*) FILTER (later < end_ns), count(*) FROM (SELECT start_ns + dur_ns AS end_ns,
    lead(start_ns, {MIN_RANGES_INSIDE}) OVER (PARTITION BY name_id, thread_id ORDER BY start_ns, cpu_op_id) AS later
    FROM cpu_ops WHERE kind = 'annotation' AND name_id IN (SELECT unnest(?::INTEGER[])))"""
DOUBTED: dict[str, Effect] = dict.fromkeys((*OF_GPU_RECORDS, *OF_STEP_TIME), "caution")
ADVICE = "Record again; close every range that your own code opens."


def checks(recording: Recording) -> Iterator[FailedCheck]:
    """Yield the failed check if ranges of data loading do not end."""
    names = recording.named(f"(?i){DATA_MARK.pattern}")
    unended, ranges = recording.rows(_UNENDED, [names])[0] if names else (0, 0)
    if unended:
        sentence = f"{unended:,} of {ranges:,} ranges of data loading do not end before the next ones begin, so the loader's time is not known."
        yield FailedCheck("ranges_unended", int(unended), sentence, ADVICE, evidence=("host_records",), effects=DOUBTED)
