"""Tests of recordings with impossible numbers.

Every reading is possible or missing with its reason, nothing raises an error, and a crash is not taken for a gate's
result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import typer

from sawtooth.analysis.findings.checking import all_rules, check
from sawtooth.analysis.findings.context import RuleContext
from sawtooth.analysis.metrics.registry import METRICS
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.model import RunResult
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.run.view import open_rank
from sawtooth.analysis.store.library import Library
from sawtooth.app import cli
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.errors import SawtoothError
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import ChromeTrace, matmul_loop

Change = Callable[[dict[str, Any]], object]


def kernels(change: Change, which: slice = slice(None)) -> ChromeTrace:
    trace = matmul_loop()
    for event in [e for e in trace.events if e["cat"] == "kernel"][which]:
        change(event)
    return trace


def shifted(us: float, which: slice = slice(None)) -> ChromeTrace:
    return kernels(lambda e: e.update(ts=e["ts"] + us), which)


def occupied(percent: float) -> ChromeTrace:
    return kernels(lambda e: e["args"].update({"est. achieved occupancy %": percent, "blocks per SM": percent}))


def analysed(tmp_path: Path, trace: ChromeTrace, telemetry: bytes | None = None) -> RunResult:
    files = [(trace.write(tmp_path / "t.json"), "t.json")]
    if telemetry is not None:
        (tmp_path / "n.jsonl").write_bytes(telemetry)
        files.append((tmp_path / "n.jsonl", "n.jsonl"))
    folder = DataFolder(tmp_path / "d").create()
    (run,) = ingest_into_runs(folder, files).runs
    library = Library(folder)
    try:
        return result_of(run, library)
    finally:
        library.close()


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    "trace",
    [
        *(shifted(us, slice(2, 3)) for us in (-1e6, -6e14, 1e12)),
        *(shifted(us) for us in (-1e3, -6e14, 1e9)),
        *(occupied(percent) for percent in (1e9, -5, 1e308)),
        kernels(lambda e: e.update(dur=0)),
        kernels(lambda e: e.update(dur=6e11)),
    ],
)
def test_no_impossible_number_and_no_crash(tmp_path: Path, trace: ChromeTrace) -> None:
    result = analysed(tmp_path, trace)
    for key, reading in result.metrics.items():
        metric = METRICS[key]
        assert reading.value is not None or reading.why_missing
        if reading.value is not None:
            assert math.isfinite(reading.value) and reading.value >= metric.low - 1e-6
            assert metric.high is None or reading.value <= metric.high + 1e-6
    step = result.metrics["best_step_time_ms"].value
    assert step is None or step > 0
    assert not [skipped for skipped in result.not_checked if "itself failed" in str(skipped)]
    json.dumps(report_json(result), allow_nan=False)


def test_steps_of_zero_length_are_reported_as_wrong_times(tmp_path: Path) -> None:
    reading = analysed(tmp_path, shifted(-6e14)).metrics["step_time_ms"]
    assert reading.value is None and "wrong times" in (reading.why_missing or "")


@pytest.mark.parametrize("value", [1e9, -50])
def test_one_impossible_sample_does_not_change_the_mean(tmp_path: Path, value: float) -> None:
    lines = [json.dumps({"t_ns": 1_790_000_000_000_000_000 + i * 10**8, "gpu": 0, "gpu_util": 50}) for i in range(100)]
    lines[40] = lines[40].replace('"gpu_util": 50', f'"gpu_util": {value}')
    reading = analysed(tmp_path, matmul_loop(), "\n".join(lines).encode()).metrics["nvml_gpu_util_mean"]
    assert reading.value == pytest.approx(0.5)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("error", [duckdb.IOException, duckdb.Error, duckdb.FatalException, SawtoothError, OSError])
def test_an_error_of_the_store_is_not_reported_as_a_failed_rule(tmp_path: Path, error: type[Exception]) -> None:
    result = analysed(tmp_path, matmul_loop())
    assert result.lead is not None
    rule = next(rule for rule in all_rules() if not rule.requires)

    def broken(given: RuleContext) -> list[Any]:
        raise error("the file")

    library = Library(DataFolder(tmp_path / "d"))
    try:
        with open_rank(library, result.lead) as view:
            given = RuleContext(result, result.lead, view.recording, None, None)
            with pytest.raises(error):
                check(given, [type(rule)(**{**vars(rule), "measure": broken})])
    finally:
        library.close()


def test_a_bug_has_its_own_exit_code_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash() -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(cli, "cli", crash)
    monkeypatch.delenv(cli.TRACEBACK, raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    answer = capsys.readouterr().err
    assert ended.value.code == 3 and answer.count("\n") == 1
    assert "bug in Sawtooth (ZeroDivisionError in test_impossible.py" in answer
    monkeypatch.setenv(cli.TRACEBACK, "1")
    with pytest.raises(SystemExit):
        cli.main()
    assert "Traceback" in capsys.readouterr().err


def test_exit_codes_of_commands_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def gate() -> None:
        raise typer.Exit(1)

    monkeypatch.setattr(cli, "cli", typer.main.get_command(_app(gate)))
    monkeypatch.setattr("sys.argv", ["sawtooth"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1


def _app(command: Callable[[], None]) -> typer.Typer:
    app = typer.Typer()
    app.command()(command)
    return app
