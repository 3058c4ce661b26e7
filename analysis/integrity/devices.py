"""Check that the device numbers of GPU operations agree with their CUDA contexts.

A context belongs to one device. In a trace of one process, operations of one context on several devices have wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE
from sawtooth.analysis.integrity.times import WITHHELD
from sawtooth.analysis.store.library import Recording

_ASTRAY = """SELECT coalesce(sum(count), 0) FROM diagnostics WHERE key = 'devices_mixed'
AND (SELECT count(DISTINCT t.pid) FROM runtime_calls JOIN threads t USING (thread_id)) = 1"""
ADVICE = "Use the trace as torch.profiler wrote it, or record again."


def checks(recording: Recording) -> Iterator[FailedCheck]:
    """Yield the failed check of a trace of one process; several processes may number their contexts alike."""
    astray = int(recording.rows(_ASTRAY)[0][0])
    if astray:
        sentence = (
            f"{astray:,} GPU operations are on another device than the others of their CUDA context: their device is wrong."
        )
        headline = "The device numbers contradict each other: record again."
        yield FailedCheck("devices_mixed", astray, sentence, ADVICE, headline, "error", EVIDENCE, WITHHELD)
