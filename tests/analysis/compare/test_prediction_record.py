"""Tests of the record of predictions and measured results.

It is stored once per pair and by rule, and the report of the later run shows it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.compare.changed.prediction import Prediction
from sawtooth.analysis.compare.prediction_record import FILE, records, remember, run_before
from sawtooth.app.cli import cli
from sawtooth.app.jobs.ingest_files import ingest_into_runs
from sawtooth.ingest.schema import DataFolder
from tests.support.anti_patterns import fills, loop


def test_each_pair_counts_once_and_by_rule(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = DataFolder(tmp_path).create()
    for predicted in (80.0, 90.0):  # Predicted again by newer code: the last prediction counts.
        remember(folder, "a", "b", Prediction(("tf32-off",), predicted, 100.0))
    remember(folder, "c", "d", Prediction(("tf32-off", "casts"), 105.0, 100.0))
    found = {record.rule: record for record in records(folder)}
    assert list(found) == ["tf32-off", "casts"]
    assert (found["tf32-off"].pairs, found["tf32-off"].median_error) == (2, pytest.approx(0.075))
    assert found["tf32-off"].worst_error == pytest.approx(0.10)
    complete = (tmp_path / FILE).read_bytes()
    for damaged in (b"no JSON", complete.replace(b"105.0", b"905.0")):
        (tmp_path / FILE).write_bytes(damaged)
        assert records(folder) == [] and "damaged" in caplog.text
        caplog.clear()


def test_report_of_a_following_run_has_the_prediction(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "data").create()
    made = {}
    for name, below in (("before", "aten::empty"), ("then", "aten::zeros")):
        (tmp_path / name).mkdir()
        files = loop(tmp_path / name, add=partial(fills, below=below))
        made[name] = ingest_into_runs(folder, [(f, f.name) for f in files], name=name).runs[0]
    assert run_before(made["then"], folder.manifests()) is None
    run = CliRunner()
    at = ["--data", str(folder.root)]
    assert "Predicted" not in run.invoke(cli, ["report", "then", *at]).output
    assert run.invoke(cli, ["runs", "tag", "then", "after=before", *at]).exit_code == 0
    output = run.invoke(cli, ["report", "then", *at]).output
    assert "Predicted ≈\u00a0249" in output and "measured 415" in output
    assert msgspec.json.decode((folder.root / FILE).read_bytes())
    assert "deterministic-algorithms" in run.invoke(cli, ["runs", "predictions", *at]).output
