"""docs/report.schema.json is what the code generates, real reports fit it, and a report that breaks the contract does not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from sawtooth.analysis.metrics.registry import METRICS, with_aliases
from sawtooth.analysis.result_cache import result_of
from sawtooth.analysis.run.contract import report_schema
from sawtooth.analysis.run.report import report_json
from sawtooth.analysis.store.library import Library
from sawtooth.app.cli import cli
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import RECORDINGS, ROOT
from tests.support.prepared import prepared

COMMITTED = ROOT / "docs" / "report.schema.json"


def report_of(data: DataFolder, *paths: Path) -> dict[str, Any]:
    """Return the report as a program reads it."""
    library = Library(data)
    try:
        return json.loads(json.dumps(report_json(result_of(prepared(data, *paths), library))))
    finally:
        library.close()


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(report_schema())
    return jsonschema.Draft202012Validator(report_schema())


def test_the_committed_schema_is_the_generated_one() -> None:
    printed = CliRunner().invoke(cli, ["report", "--schema"])
    assert printed.exit_code == 0
    assert COMMITTED.read_text(encoding="utf-8") == printed.output, (
        "write it again: sawtooth report --schema > docs/report.schema.json"
    )


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "files",
    [
        ("mlp_graph/trace.json.gz", "mlp_graph/nvml.jsonl"),
        ("mlp_graph/nvml.jsonl",),
        ("ddp_straggler/0.trace.json.gz", "ddp_straggler/1.trace.json.gz"),
        ("../graph_breaks/breaks_1.json.gz", "../graph_breaks/breaks_1.log.gz"),
    ],
    ids=["a trace with telemetry", "telemetry alone", "two ranks", "a trace with torch.compile's log"],
)
def test_real_reports_fit_it(validator: jsonschema.Draft202012Validator, app_data: DataFolder, files: tuple[str, ...]) -> None:
    report = report_of(app_data, *(RECORDINGS / file for file in files))
    assert [error.message for error in validator.iter_errors(report)] == []
    assert set(report["metrics"]) == set(with_aliases(METRICS))
    assert ("ranks" in report) == (files[0].startswith("ddp"))


def test_a_report_that_breaks_the_contract_does_not_fit(
    validator: jsonschema.Draft202012Validator, app_data: DataFolder
) -> None:
    report = report_of(app_data, RECORDINGS / "mlp_graph" / "trace.json.gz")
    for change in (
        lambda r: r.pop("findings"),
        lambda r: r["metrics"]["mfu"].pop("why_missing"),
        lambda r: r["metrics"]["step_time_ms"].update(value="1.1"),
        lambda r: r["ledger"][0].update(share=1.5),
        lambda r: r.update(report_version=2),
    ):
        broken = copy.deepcopy(report)
        change(broken)
        assert not validator.is_valid(broken)
