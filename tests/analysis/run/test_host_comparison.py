"""Tests of comparisons of runs without GPU work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.compare.comparison import Comparison, compare
from sawtooth.analysis.compare.comparison_side import side_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli
from sawtooth.app.reports import comparison as compare_text
from sawtooth.app.reports import html
from sawtooth.app.words.comparisons import comparison as words
from sawtooth.app.words.comparisons import setup_changes, step_parts
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace
from tests.support.host_loops import WAITS, analysed, loop, marked


def test_runs_without_gpu_work_are_compared_by_their_marks(tmp_path: Path) -> None:
    files = [str(marked(tmp_path / name / "marks.jsonl", step_ms)) for name, step_ms in (("slow", 0.8), ("quick", 0.4))]
    asked = ["compare", *files, "--format", "json", "--data", str(tmp_path / "data")]
    reported = json.loads(CliRunner().invoke(cli, asked).stdout)
    best = reported["best_step_time_ms"]
    assert (best["verdict"], best["confidence"], best["source"]) == ("faster", "medium", {"a": "marks", "b": "marks"})
    # Drift of a host's speed does not halve a step; other load on the host may.
    assert best["change_ms"] == pytest.approx(-0.4)


def compared(data: DataFolder, a: RunResult, b: RunResult) -> Comparison:
    library = Library(data)
    try:
        return compare(side_of([a], library), side_of([b], library))
    finally:
        library.close()


def test_comparison_without_gpu_work_compares_the_host(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    a = analysed(data, loop(6).write(tmp_path / "a.json"))
    b = analysed(data, loop(9).write(tmp_path / "b.json"), step_time_ms=0.5)
    pair = compared(data, a, b)
    rows = {row.owner: (float(row.ms_a), float(row.ms_b)) for row in pair.waterfall_run}
    assert rows == {
        "host_loading": pytest.approx((0.6, 0.3)),
        "host_operators": pytest.approx((0.3, 0.15)),
        "host_rest": pytest.approx((0.1, 0.05)),
    }
    for form in (compare_text.text, compare_text.markdown, html.comparison_html):
        content = form(pair)
        assert "waiting for batches" in content
        for untrue in ("The GPU waits", "the GPU works", "makes of its GPU", "time outside the profiled steps"):
            assert untrue not in content
    assert step_parts.idle_title(step_parts.bars(pair, "run"), "run").startswith(
        "The host waits for batches 60\u00a0% of A's step"
    )


def test_operators_unknown_on_one_side_are_other_work_on_both(tmp_path: Path) -> None:
    """The trace's step has 0.6 ms of waiting, 0.4 of operators and the rest.

    By its loader's times, the other run waits 16 of its 20 ms.
    """
    data = DataFolder(tmp_path / "data").create()
    timed = analysed(data, marked(tmp_path / "a" / "marks.jsonl", 20.0), **WAITS, loader_workers=0)
    pair = compared(data, timed, analysed(data, loop(6).write(tmp_path / "b.json")))
    rows = {row.owner: (float(row.ms_a), float(row.ms_b)) for row in pair.waterfall_run}
    assert rows == {"host_loading": pytest.approx((16.0, 0.6)), "host_rest": pytest.approx((4.0, 0.4))}


def test_five_profiled_host_steps_per_side_give_a_verdict(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    slow = ChromeTrace()
    for k in range(6):
        slow.step(k, 2000 * k, 2000 * k + 2000)
        slow.op("aten::mm", 2000 * k + 10, 2000 * k + 1990)
    pair = compared(data, analysed(data, slow.write(tmp_path / "a.json")), analysed(data, loop(6).write(tmp_path / "b.json")))
    # The step is twice as long. The profiler alone can cause this, and so can the difference between two runs on such a host.
    assert (pair.verdict.word, pair.verdict.confidence) == ("faster", "low")
    assert "≈\u00a02.00\u00a0ms → ≈\u00a01.00\u00a0ms" in words.headline(pair)


def test_run_without_a_profile_reports_unknown_instead_of_none(tmp_path: Path) -> None:
    data = DataFolder(tmp_path / "data").create()
    a = analysed(data, loop(20).write(tmp_path / "a.json"), loader_workers=0)
    b = analysed(data, marked(tmp_path / "marks.jsonl", 0.4), **WAITS | {"loader_workers": 4})
    library = Library(data)
    reported = " ".join(setup_changes.sentences(compare(side_of([a], library), side_of([b], library))))
    library.close()
    assert "waiting for batches 0.60\u00a0ms → not recorded" in reported
    assert "→ none" not in reported and "% of the gain" not in reported
