"""Tests of several changes at once: they are replayed together, and gains are not added."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.combined_changes import CombinedPrediction
from sawtooth.analysis.combined_changes import combined_prediction as outlook_of
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop


def test_without_a_change_the_step_stays_and_changes_never_slow_it(tmp_path: Path) -> None:
    library = Library(DataFolder(tmp_path / "data"))
    run = ingest_into_runs(library.folder, [(matmul_loop().write(tmp_path / "t.json"), "t.json")]).runs[0]
    result = analyse(run, library)
    assert result.lead is not None
    best = result.lead.best.ms
    assert best is not None
    unchanged = outlook_of(library, result.lead, 1, [])
    assert unchanged is not None and unchanged.after_ms == pytest.approx(best)
    alone = [outlook_of(library, result.lead, 1, [finding]) for finding in result.findings]
    forecast = outlook_of(library, result.lead, 1, result.findings)
    assert forecast is not None
    assert all(one is not None and forecast.after_ms <= one.after_ms * 1.001 for one in alone)
    assert forecast.low_ms is not None and forecast.high_ms is not None
    assert forecast.low_ms <= forecast.after_ms <= forecast.high_ms
    library.close()


def test_changes_selected_together_have_the_interval_of_their_plan(tmp_path: Path) -> None:
    trace = ChromeTrace()
    for at in trace.each_step(5, 42_000.0):  # 42 ms, of which the step loads for 40 in its own process
        trace.host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5, at + 40_005)
        for start in (at + 40_010, at + 40_900):
            trace.op("aten::add", start, start + 80, [[64, 64], [64, 64]], ["float", "float"])
            trace.launch((start + 40, start + 50), (start + 60, start + 65), "add")
    library = Library(DataFolder(tmp_path / "data"))
    result = analyse(ingest_into_runs(library.folder, [(trace.write(tmp_path / "t.json"), "t.json")]).runs[0], library)
    assert result.lead is not None and result.plan
    planned = [finding for finding in result.findings if finding.rule in {step.rule for step in result.plan}]
    forecast, last = outlook_of(library, result.lead, 1, planned), result.plan[-1]
    assert forecast is not None and (forecast.low_ms, forecast.high_ms) == (last.predicted_low_ms, last.predicted_high_ms)
    library.close()


def combined_prediction(after: float, mfu: float | None = 0.005, gpus: int = 8) -> CombinedPrediction:
    return CombinedPrediction(before_ms=312.0, after_ms=after, mfu_before=mfu, gpus=gpus)


def test_savings_are_stated_for_a_day_and_for_the_remaining_steps() -> None:
    # 312 → 26 ms: 12 times as fast; MFU 0.5 % × 12 = 6 %; a million steps take 86.7 and 7.2 h
    found = combined_prediction(26.0)
    assert found.speedup == pytest.approx(12)
    assert found.mfu == pytest.approx(0.06)
    assert found.hours_of(1e6) == (pytest.approx(86.667, rel=1e-4), pytest.approx(7.2222, rel=1e-4))
