"""Tests of pinned loader memory: its gain, and the limit of the pinning thread."""

from __future__ import annotations

import pytest

from sawtooth.analysis.findings.checking import found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.rules import pageable_copies
from sawtooth.analysis.run_analysis import whatif_of
from tests.support.findings_of import library, result_of


def test_pinning_gains_nothing_if_the_pinning_thread_would_be_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    # On an H200 with 157 MB a step, loaded by twelve workers, the prediction was 36 ms instead of 58; the run took 54.
    # One thread pins 2.9 GB/s.
    result = result_of("copy_pageable")
    with library().open(result.lead.recording_id) as recording:
        context = RuleContext(result, result.lead, recording, whatif=whatif_of(recording, result.lead))
        (alone,) = found_by(pageable_copies.RULE, context)
        monkeypatch.setattr(pageable_copies, "loads_in_workers", lambda _: True)
        monkeypatch.setattr(pageable_copies, "THREAD_BYTES_PER_NS", 1000.0)
        (fast,) = found_by(pageable_copies.RULE, context)
        copied = pageable_copies.copies(context, "(?i)pageable *-> *device")
        size = float(copied.frame["bytes"].sum()) / copied.steps
        monkeypatch.setattr(pageable_copies, "THREAD_BYTES_PER_NS", size / (0.95 * context.step_ms * 1e6))
        (slow,) = found_by(pageable_copies.RULE, context)
        monkeypatch.setattr(RuleContext, "predict_ms", lambda *_: None)
        (unknown,) = found_by(pageable_copies.RULE, context)
    assert unknown.fix.startswith("Pin the loader's memory"), "nothing tells that the thread would be slower"
    assert alone.predicted_step_ms == fast.predicted_step_ms is not None
    assert slow.predicted_step_ms is None and not slow.edits and slow.fix.startswith("Send fewer bytes")
    assert slow.ceiling_ms_per_step == alone.ceiling_ms_per_step, "fewer bytes may save all that the copies lose"
