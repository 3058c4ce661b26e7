"""Tests of the report from a trace file, by hand and through the command line."""

import gzip
import json

import pytest
from typer.testing import CliRunner

from sawtooth.analysis.findings.checking import FAILED_RULE
from sawtooth.analysis.metrics.registry import ALIASES, METRICS
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run_analysis import analyse
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.errors import NotFoundError, SourceError
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop

TOP_KEYS = {
    "report_version", "tool_version", "run", "devices", "steps", "window_ns", "step_time_source", "metrics", "ledger", "phases",
    "kernel_categories", "findings", "not_checked", "diagnostics", "witnesses", "plan", "audit", "stragglers",
}  # fmt: skip


@pytest.fixture
def library(tmp_path):
    library = Library(DataFolder(tmp_path / "data"))
    yield library
    library.close()


def report_of(library, path):
    run = ingest_into_runs(library.folder, [(path, path.name)]).runs[0]
    return report_json(analyse(run, library))


def test_the_matmul_loop_by_hand(tmp_path, library):
    report = report_of(library, matmul_loop().write(tmp_path / "loop.json"))
    assert set(report) == TOP_KEYS
    # Steps end at 740, 1740, 2740, 3740 µs. The first is left out; three of 1000 µs count: window 3000 µs.
    assert report["steps"] == {"source": "profiler_step", "count": 4, "counted": 3, "device_step_ms": [1.0, 1.0, 1.0]}
    assert report["window_ns"] == 3_000_000
    owners = {}
    for row in report["ledger"]:
        owners[row["owner"]] = owners.get(row["owner"], 0) + row["ns"]
    # 3 × 600 µs of matrix product, 3 × 100 µs of addition, the rest idle.
    assert owners == {"tensor_core_compute": 1_800_000, "other_compute": 300_000, "idle": 900_000}
    value = {key: entry["value"] for key, entry in report["metrics"].items()}
    assert value["step_time_ms"] == pytest.approx(1.0)
    assert value["gpu_busy_share"] == pytest.approx(0.7)
    assert value["gpu_idle_share"] == pytest.approx(0.3)
    assert value["tensor_core_time_share"] == pytest.approx(6 / 7)
    assert value["kernel_launches_per_step"] == 2
    # (min(2.0, 1) × 600 + 0.5 × 100) ÷ 1000
    assert value["sm_efficiency"] == pytest.approx(0.65)


def test_every_metric_has_a_value_or_a_reason(tmp_path, library):
    report = report_of(library, matmul_loop().write(tmp_path / "loop.json"))
    assert list(report["metrics"]) == [*METRICS, *ALIASES]
    for entry in report["metrics"].values():
        assert set(entry) - {"low", "high"} == {"value", "unit", "why_missing", "trust", "notes"}
        assert (entry["value"] is None) == bool(entry["why_missing"])
    for key in ("step_time_unprofiled_est_ms", "step_time_best_ms", "best_step_time_ms"):
        entry = report["metrics"][key]
        assert entry["low"] <= entry["value"] <= entry["high"]
    assert [(w["source"], w["ms"]) for w in report["witnesses"]] == [
        ("estimate", report["metrics"]["step_time_unprofiled_est_ms"]["value"])
    ]
    assert report["metrics"]["best_step_time_ms"] == report["metrics"]["step_time_best_ms"]


def test_a_trace_without_gpu_work_gives_the_reason(tmp_path, library):
    trace = ChromeTrace()
    trace.op("aten::mm", 0, 10)
    report = report_of(library, trace.write(tmp_path / "cpu.json"))
    assert all(entry["value"] is None for entry in report["metrics"].values())
    assert "ProfilerActivity.CUDA" in report["metrics"]["gpu_busy_share"]["why_missing"]


def test_carried_over_work_is_busy_time_of_no_step(tmp_path, library):
    trace = matmul_loop()
    trace.gpu((0, 20), "kernel_of_before")
    report = report_of(library, trace.write(tmp_path / "carried.json"))
    keys = {d["key"]: d["count"] for d in report["diagnostics"]}
    assert keys["carried_over"] == 1
    assert report["metrics"]["kernel_launches_per_step"]["value"] == 2


def test_dropped_launches_lower_the_trust(tmp_path, library):
    trace = matmul_loop()
    for k in range(4):
        trace.gpu((k * 1000 + 800, k * 1000 + 900), "launched_by_nobody")
    report = report_of(library, trace.write(tmp_path / "orphans.json"))
    assert report["metrics"]["step_time_ms"]["trust"] == "caution"
    assert {d["key"] for d in report["diagnostics"]} >= {"orphans"}


def test_a_folder_a_file_and_a_run_id_give_the_same_numbers(tmp_path):
    source = tmp_path / "given"
    source.mkdir()
    plain = matmul_loop().write(source / "trace.json")
    (source / "notes.md").write_text("not a trace")
    data = tmp_path / "data"
    runner = CliRunner()
    ingested = runner.invoke(cli, ["ingest", str(plain), "--data", str(data)])
    assert ingested.exit_code == 0
    run_id = ingested.stdout.strip().splitlines()[-1]
    reports = [
        json.loads(runner.invoke(cli, ["report", what, "--format", "json", "--data", str(data)]).stdout)
        for what in (str(plain), str(source), run_id)
    ]
    assert reports[0] == reports[1] == reports[2]
    zipped = tmp_path / "same.json"  # A gzip file whose name does not end in .gz.
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    again = json.loads(runner.invoke(cli, ["report", str(zipped), "--format", "json"]).stdout)
    assert again["run"]["id"] == run_id
    assert again["metrics"] == reports[0]["metrics"]


@pytest.mark.parametrize("fmt", ["text", "md"])
def test_reports_for_people_begin_with_the_answer(tmp_path, fmt):
    plain = matmul_loop().write(tmp_path / "trace.json")
    out = CliRunner().invoke(cli, ["report", str(plain), "--format", fmt]).stdout
    assert "The GPU is busy" in "\n".join(out.splitlines()[:6])


def test_unreadable_file_gives_one_sentence(tmp_path):
    wrong = tmp_path / "photo.json"
    wrong.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    with pytest.raises(SourceError, match=r"\."):
        CliRunner().invoke(cli, ["report", str(wrong)], catch_exceptions=False)
    with pytest.raises(NotFoundError, match="sawtooth ingest"):
        CliRunner().invoke(cli, ["report", "0123456789abcdef", "--data", str(tmp_path / "d")], catch_exceptions=False)


def test_unlisted_device_has_the_only_model(tmp_path, library):
    trace = matmul_loop()
    for event in trace.events:
        if event["cat"] == "kernel":
            event["pid"] = event["args"]["device"] = 2  # ROCm counts the CPUs first
    report = report_of(library, trace.write(tmp_path / "loop.json"))
    assert report["devices"][0]["name"] == "NVIDIA H200"
    assert report["metrics"]["mfu"]["value"] is not None


def test_no_rule_fails_on_odd_traces(tmp_path, library):
    odd = ChromeTrace(record_shapes=0)
    odd.gpu((0, 5), "lonely")
    paths = [
        matmul_loop().write(tmp_path / "a.json"),
        matmul_loop(2).write(tmp_path / "b.json"),
        odd.write(tmp_path / "c.json"),
    ]
    for path in paths:
        assert [n for n in report_of(library, path)["not_checked"] if FAILED_RULE in n["because"]] == []
