"""Check that the device numbers of GPU operations agree with their CUDA contexts.

A context belongs to one device. So in a trace of one process, some device numbers are wrong if one context has operations on
several devices.
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
    """Yield the failed check if device numbers contradict the contexts.

    Only traces of one process are checked, because several processes may use the same numbers for their contexts.
    """
    for wrong, sentence in recording.rows(_CONTRADICTING):
        headline = "The device numbers contradict each other. Record again."
        doubted = f"{sentence.removesuffix('.')}, so this number is wrong."
        yield FailedCheck("devices_mixed", int(wrong), doubted, ADVICE, headline, "error", EVIDENCE, WITHHELD)
