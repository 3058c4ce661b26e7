"""Tests of files of step marks, alone and in a bundle, which give the report's step time."""

import json
from pathlib import Path

import pytest

from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.analysis.telemetry.step_marks import step_mark_evidence
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.capture.marks import MarkWriter
from sawtooth.ingest.errors import SourceError
from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.runs.bundle import export_runs, import_bundle
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import RECORDINGS

BEFORE_NS = 3_000_000_000  # The marks are from before the trace.
STEP_NS = 6_500_000


def written(path: Path, steps: int, start_ns: int) -> Path:
    clock = {"now": 0}
    writer = MarkWriter(path, recorder="0.1.0", wall_ns=lambda: start_ns, monotonic_ns=lambda: clock["now"])
    for step in range(steps):
        clock["now"] += STEP_NS
        writer.mark(step, batch=8)
    writer.close()
    return path


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data").create()


def test_marks_are_the_best_evidence_after_the_user_and_are_in_bundles(folder: DataFolder, tmp_path: Path) -> None:
    trace = RECORDINGS / "gpt_small" / "trace.json.gz"
    first_ns = 1_700_000_000_000_000_000
    marks = written(tmp_path / "marks.jsonl", 300, first_ns - BEFORE_NS)
    (run,) = ingest_into_runs(folder, [(trace, "trace.json.gz"), (marks, "marks.jsonl")]).runs
    library = Library(folder)
    result = analyse(run, library)
    assert result.lead is not None and result.lead.best.source == "marks"
    assert result.metrics["best_step_time_ms"].value == pytest.approx(STEP_NS / 1e6)
    export_runs(folder, [run.id], tmp_path / "run.sawtooth")
    other = DataFolder(tmp_path / "other").create()
    (imported,) = import_bundle(tmp_path / "run.sawtooth", other)
    assert sorted(ref.kind for ref in imported.recordings) == ["marks", "trace"]
    library.close()


def test_a_phase_before_the_training_does_not_hide_its_marks(folder: DataFolder, tmp_path: Path) -> None:
    clock = {"now": 0}
    path = tmp_path / "marks.jsonl"
    writer = MarkWriter(path, wall_ns=lambda: 1_700_000_000_000_000_000, monotonic_ns=lambda: clock["now"])
    for optimizer, steps in ((0, 5), (1, 300)):
        for step in range(steps):
            clock["now"] += STEP_NS
            writer.mark(step, optimizer=optimizer)
    writer.close()
    (run,) = ingest_into_runs(folder, [(path, path.name)]).runs
    stopwatch = step_mark_evidence(run, Library(folder), None)
    assert stopwatch is not None and stopwatch.ms == pytest.approx(STEP_NS / 1e6)


@pytest.mark.parametrize(
    "odd", [{"i": -1}, {"i": 2**63}, {"w": 2**62}, {"o": 2**31}, {"o": -1}, {"b": -1.0}, {"b": 1e300}, {"n": -5}]
)
def test_a_number_without_a_loop_is_left_out(folder: DataFolder, tmp_path: Path, odd: dict[str, float]) -> None:
    path = written(tmp_path / "marks.jsonl", 20, 1_700_000_000_000_000_000)
    with path.open("a") as file:
        file.write(json.dumps({"k": "mark", "i": 20, "w": 1_700_000_001_000_000_000} | odd))
    ref = ingest_file(path, folder)
    with Library(folder).open(ref.id, derived=False) as recording:
        assert recording.rows("SELECT count(*), max(step) FROM step_marks") == [(20, 19)]
        assert recording.rows("SELECT count FROM diagnostics WHERE key = 'marks_skipped'") == [(1,)]


def test_incomplete_and_unknown_lines_are_left_out_and_counted(folder: DataFolder, tmp_path: Path) -> None:
    path = written(tmp_path / "marks.jsonl", 20, 1_700_000_000_000_000_000)
    with path.open("ab") as file:
        file.write(json.dumps({"k": "mark", "i": 20, "w": 1, "p": "unheard"}).encode() + b'\n{"\xff": 1}\n{"k": "mark", "i": 2')
    ref = ingest_file(path, folder)
    assert ref.kind == "marks"
    with Library(folder).open(ref.id, derived=False) as recording:
        assert recording.rows("SELECT count(*), max(step) FROM step_marks") == [(20, 19)]
        assert recording.rows("SELECT count FROM diagnostics WHERE key = 'marks_skipped'") == [(3,)]


def test_a_file_without_marks_is_refused_with_one_sentence(folder: DataFolder, tmp_path: Path) -> None:
    (tmp_path / "marks.jsonl").write_text('{"k": "marks", "v": 1}\n')
    with pytest.raises(SourceError, match="contains no mark, because no step ended"):
        ingest_file(tmp_path / "marks.jsonl", folder)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"k": "mark", "i": 2'], "its only line is damaged or unknown"),
        (['{"k": "mark", "i": 2', '{"k": "mark", "i": 20, "w": 1, "p": "unheard"}'], "all 2 lines are damaged or unknown"),
    ],
)
def test_a_file_with_only_damaged_or_unknown_marks_says_so(
    folder: DataFolder, tmp_path: Path, lines: list[str], message: str
) -> None:
    (tmp_path / "marks.jsonl").write_text("\n".join(['{"k": "marks", "v": 1}', *lines]))
    with pytest.raises(SourceError, match=message):
        ingest_file(tmp_path / "marks.jsonl", folder)


def test_marks_written_by_a_script_are_not_telemetry(folder: DataFolder, tmp_path: Path) -> None:
    """Lines without a quantity are not samples of a GPU."""
    path, first_ns = tmp_path / "marks.jsonl", 1_700_000_000_000_000_000
    lines = [json.dumps({"step": i, "t_ns": first_ns + i * STEP_NS, "phase": "train"}) for i in range(40)]
    path.write_text("\n".join([*lines, '{"step": 40, "t_ns": 17']))
    (run,) = ingest_into_runs(folder, [(path, path.name)]).runs
    assert [ref.kind for ref in run.recordings] == ["marks"]
    library = Library(folder)
    step = analyse(run, library).metrics["best_step_time_ms"]
    assert step.value == pytest.approx(STEP_NS / 1e6)
    with library.open(run.recordings[0].id, derived=False) as recording:
        assert recording.rows("SELECT count FROM diagnostics WHERE key = 'marks_skipped'") == [(1,)]
    library.close()


def test_samples_with_a_step_number_are_telemetry(folder: DataFolder, tmp_path: Path) -> None:
    sample = {"step": 1, "t_ns": 1_700_000_000_000_000_000, "gpu_util": 50}
    (tmp_path / "nvml.jsonl").write_text(json.dumps(sample) + "\n")
    assert ingest_file(tmp_path / "nvml.jsonl", folder).kind == "telemetry"


def test_call_sites_are_stored_and_may_be_missing(folder: DataFolder, tmp_path: Path) -> None:
    path = tmp_path / "marks.jsonl"
    writer = MarkWriter(path, wall_ns=lambda: 1_700_000_000_000_000_000)
    for step in range(4):
        writer.mark(step, site=(step // 2, [f"train.py:{step // 2}", "train.py:9"], ""))
    writer.mark(4, site=(64, [], ""))  # 64 is beyond the largest number of a call site.
    writer.close()
    cut = tmp_path / "cut.jsonl"
    head, *lines = path.read_text().splitlines()
    cut.write_text("\n".join([head, lines[1], lines[3]]))
    expected = {path: ["train.py:0 < train.py:9"] * 2 + ["train.py:1 < train.py:9"] * 2 + ["#64"], cut: ["#0", "#1"]}
    for file, sites in expected.items():
        (run,) = ingest_into_runs(folder, [(file, file.name)]).runs
        with Library(folder) as library, library.open(run.recordings[0].id, derived=False) as recording:
            assert [site for (site,) in recording.rows("SELECT site FROM step_marks ORDER BY step")] == sites
