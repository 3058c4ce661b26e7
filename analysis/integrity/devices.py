"""Check that the device numbers of GPU operations agree with their CUDA contexts.

A context belongs to one device. In a trace of one process, operations of one context on several devices have wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE
from sawtooth.analysis.integrity.times import WITHHELD
from sawtooth.analysis.store.library import Recording

_CONTRADICTING = """SELECT coalesce(sum(count), 0) FROM diagnostics WHERE key = 'devices_mixed'
AND (SELECT count(DISTINCT t.pid) FROM runtime_calls JOIN threads t USING (thread_id)) = 1"""
ADVICE = "Use the trace as torch.profiler wrote it, or record again."


def checks(recording: Recording) -> Iterator[FailedCheck]:
    """Yield the failed check of a trace of one process.

    Several processes may use the same numbers for their contexts, so their traces are not checked.
    """
    wrong = int(recording.rows(_CONTRADICTING)[0][0])
    if wrong:
        sentence = (
            f"{wrong:,} GPU operations have another device number than the rest of their CUDA context, so this number is wrong."
        )
        headline = "The device numbers contradict each other: record again."
        yield FailedCheck("devices_mixed", wrong, sentence, ADVICE, headline, "error", EVIDENCE, WITHHELD)
