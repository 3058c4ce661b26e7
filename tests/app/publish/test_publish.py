"""Tests of ``sawtooth publish``: the values that each tracker's functions receive.

Tests with the real trackers are in tests/counterparts/.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sawtooth.app.cli import cli
from sawtooth.ingest.errors import SawtoothError, UsageError
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
from tests.support.prepared import prepared, prepared_result

STARVED = ROOT / "sample_traces" / "resnet_starved"
FILES = (STARVED / "trace.json.gz", STARVED / "nvml.jsonl")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    folder = DataFolder(tmp_path_factory.mktemp("publish") / "data").create()
    prepared(folder, *FILES)
    return folder


def publish(data: DataFolder, *arguments: str) -> Result:
    run = data.manifests()[0].id
    return CliRunner().invoke(cli, ["publish", run, "--data", str(data.root), *arguments])


class _Calls:
    def __init__(self, **more: Any) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.__dict__.update(more)

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args, kwargs))
            return self

        return call

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]


def test_tensorboard_gets_every_number_of_the_report(data: DataFolder, tmp_path: Path) -> None:
    sent = json.loads(publish(data, "--to", "tensorboard", "--folder", str(tmp_path / "runs"), "--json").output)
    result = prepared_result(*FILES)
    values = sent["values"]
    step = result.metrics["best_step_time_ms"]
    assert (values["sawtooth/step_time_ms"], values["sawtooth/step_time_low_ms"]) == (step.value, step.low)
    assert values["sawtooth/lost_ms/data_wait"] > 0.5 * values["sawtooth/step_time_ms"]  # This run waits for its loader.
    assert values["sawtooth/planned_step_time_ms"] == result.plan[-1].predicted_step_ms
    (events,) = Path(sent["where"]).glob("events.out.tfevents.*")
    assert all(name.encode() in events.read_bytes() for name in values)
    assert (Path(sent["where"]) / "sawtooth_report.html").stat().st_size > 10_000


def test_mlflow_gets_metrics_files_and_the_link(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    library = _Calls(info=SimpleNamespace(run_id="r1"))
    monkeypatch.setitem(sys.modules, "mlflow", library)
    done = publish(data, "--to", "mlflow", "--project", "net", "--run", "r1", "--url", "http://here/verdict?run=1")
    assert "run r1 of experiment net" in done.output
    assert library.of("start_run") == [((), {"run_id": "r1"})] and library.of("set_experiment") == [(("net",), {})]
    assert library.of("set_tag") == [(("sawtooth.url", "http://here/verdict?run=1"), {})]
    assert [Path(args[0]).name for args, _ in library.of("log_artifact")] == ["sawtooth_report.html", "sawtooth_report.json"]
    assert "sawtooth/step_time_ms" in library.of("log_metrics")[0][0][0]


def test_wandb_and_trackio_get_the_report_without_a_step_number(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    summary: dict[str, Any] = {}
    library = _Calls(summary=summary, id="w1", url=None)
    monkeypatch.setitem(sys.modules, "wandb", library)
    assert "offline run w1" in publish(data, "--to", "wandb", "--url", "http://here").output
    assert summary["sawtooth/url"] == "http://here" and summary["sawtooth/step_time_ms"] > 0
    assert all("step" not in kwargs for _, kwargs in library.of("log"))
    assert library.calls[-1][0] == "finish"

    other = _Calls()
    monkeypatch.setitem(sys.modules, "trackio", other)
    assert "of project sawtooth" in publish(data, "--to", "trackio").output
    assert other.of("Html")[0][0][0].startswith("<!") and other.calls[-1][0] == "finish"


def test_a_missing_library_and_a_refusing_server_are_reported(data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    missing = publish(data, "--to", "mlflow").exception
    assert isinstance(missing, UsageError) and "pip install mlflow" in str(missing)

    def refuse(*_: Any) -> None:
        raise RuntimeError("no such server\nand more")

    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(set_experiment=refuse))
    refused = publish(data, "--to", "mlflow").exception
    assert isinstance(refused, SawtoothError) and "no such server)" in str(refused)
