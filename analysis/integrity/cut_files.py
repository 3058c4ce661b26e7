"""Check that the trace file contains all events.

PyTorch writes the operators first, then the GPU's operations and their launches, which are not in order of time. So a file that
is cut off lacks GPU operations of every step.
"""

from __future__ import annotations

from collections.abc import Iterator

from sawtooth.analysis.integrity.failed_check import FailedCheck
from sawtooth.analysis.integrity.lost_records import EVIDENCE
from sawtooth.analysis.integrity.times import WITHHELD
from sawtooth.analysis.store.library import Recording

_CUT = "SELECT count(*) FROM diagnostics WHERE key = 'events_cut'"
SENTENCE = "The trace file ends within its events. torch.profiler writes the GPU's operations last, so operations of every step may be missing."
HEADLINE = "The trace file is cut off. Copy it again."
ADVICE = "If the original is cut off too, record again and let the job write the file to its end."


def checks(recording: Recording) -> Iterator[FailedCheck]:
    """Yield the failed check if the file ends within its events."""
    if recording.rows(_CUT)[0][0]:
        yield FailedCheck("events_cut", 1, SENTENCE, ADVICE, HEADLINE, "error", EVIDENCE, WITHHELD)
