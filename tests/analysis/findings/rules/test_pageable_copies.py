"""Tests of pinned loader memory: its gain, and the limit of the pinning thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.findings.checking import found_by
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.findings.rules import pageable_copies
from sawtooth.analysis.run_analysis import whatif_of
from tests.support.by_hand import analysed, of_rule
from tests.support.chrome_trace import ChromeTrace
from tests.support.findings_of import library, result_of

BATCH_BYTES = 10_000_000
LOADING_US, COPY_US, COMPUTING_US, PRODUCT_US = 100.0, 2000.0, 4000.0, 500.0


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


def loading_loop(loader: str, after_copy_us: float) -> ChromeTrace:
    """Add steps that load a batch, copy it, run Python for ``after_copy_us``, and compute."""
    trace = ChromeTrace(made_for=f"{loader} {after_copy_us}")
    for at in trace.each_step(6, LOADING_US + COPY_US + after_copy_us + COMPUTING_US):
        trace.host("user_annotation", f"enumerate(DataLoader)#{loader}.__next__", at, at + LOADING_US)
        copied = at + LOADING_US
        trace.op("aten::copy_", copied, copied + COPY_US, [[64, 39062], [64, 39062], []], ["float", "float", "Scalar"])
        trace.launch(
            (copied + 5, copied + COPY_US - 5), (copied + 15, copied + COPY_US - 10), "Memcpy HtoD (Pageable -> Device)", "gpu_memcpy", bytes=BATCH_BYTES
        )  # fmt: skip
        start = copied + COPY_US + after_copy_us
        trace.op("aten::mm", start, start + 20, [[4096, 4096], [4096, 4096]], ["c10::BFloat16", "c10::BFloat16"])
        trace.launch(
            (start + 5, start + 10), (start + 15, start + 15 + PRODUCT_US), "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_NNT"
        )
    return trace


@pytest.mark.parametrize(
    ("loader", "after_copy_us", "step_us"),
    [
        # The loop releases 10 MB in 1 to 2 ms. Pinning (10 MB at 2.9 GB/s) takes less time than the rest of the loop.
        ("_MultiProcessingDataLoaderIter", 1500.0, LOADING_US + COMPUTING_US),
        # Less than 1 ms is other work, which stays in the loop.
        ("_MultiProcessingDataLoaderIter", 800.0, LOADING_US + 800.0 + COMPUTING_US),
        # At most 2 ms are the release. The other 2 ms stay.
        ("_MultiProcessingDataLoaderIter", 4000.0, LOADING_US + 4000.0 - BATCH_BYTES / 5e3 + COMPUTING_US),
        ("_SingleProcessDataLoaderIter", 1500.0, LOADING_US + 1500.0 + COMPUTING_US),  # The loop still makes each batch itself.
    ],
)
def test_pinning_moves_the_release_of_batches_out_of_the_loop(
    tmp_path: Path, loader: str, after_copy_us: float, step_us: float
) -> None:
    found = of_rule(analysed(tmp_path, loading_loop(loader, after_copy_us)), "pageable-copies")
    assert found is not None and found.predicted_step_ms is not None and found.predicted_high_ms is not None
    assert found.predicted_step_ms == pytest.approx(step_us / 1e3, rel=0.05)
    assert found.predicted_high_ms > (LOADING_US + after_copy_us) / 1e3, "the time after the copy may be other work"
