"""Check that the device numbers of GPU operations agree with their CUDA contexts.

A context belongs to one device. In a trace of one process, operations of one context on several devices have wrong numbers.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE
from sawtooth.analysis.integrity.times import WITHHELD
from sawtooth.analysis.store.library import Recording

_CONTRADICTING = """SELECT count, sentence FROM diagnostics WHERE key = 'devices_mixed' AND count > 0
AND (SELECT count(DISTINCT t.pid) FROM runtime_calls JOIN threads t USING (thread_id)) = 1"""
ADVICE = "Use the trace as torch.profiler wrote it, or record again."


def checks(recording: Recording) -> Iterator[FailedCheck]:
    """Yield the failed check of a trace of one process.

    Several processes may use the same numbers for their contexts, so their traces are not checked.
    """
    for wrong, sentence in recording.rows(_CONTRADICTING):
        headline = "The device numbers contradict each other: record again."
        doubted = f"{sentence.removesuffix('.')}, so this number is wrong."
        yield FailedCheck("devices_mixed", int(wrong), doubted, ADVICE, headline, "error", EVIDENCE, WITHHELD)
