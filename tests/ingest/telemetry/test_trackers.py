"""Tests of the telemetry of W&B and MLflow. The expected numbers were read from the excerpts by hand."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.errors import SourceError
from tests.support.ingested_telemetry import diagnostics, ingested, rows
from tests.support.paths import TELEMETRY


def as_json_list(path: Path) -> None:
    path.write_text(json.dumps(wandb_records()))


def as_json_lines(path: Path) -> None:
    path.write_text("".join(json.dumps(r) + "\n" for r in wandb_records()))


def as_pandas_json(path: Path) -> None:
    records = wandb_records()
    names = dict.fromkeys(k for r in records for k in r)
    path.write_text(json.dumps({n: {str(i): r.get(n) for i, r in enumerate(records)} for n in names}))


def as_gzipped_csv(path: Path) -> None:
    path.write_bytes(gzip.compress((TELEMETRY / "wandb.csv").read_bytes()))


def wandb_records() -> list[dict[str, Any]]:
    head, *lines = (TELEMETRY / "wandb.csv").read_text().splitlines()
    return [{k: float(v) for k, v in zip(head.split(","), line.split(","), strict=True) if k and v} for line in lines]


@pytest.mark.parametrize("write", [as_json_list, as_json_lines, as_pandas_json, as_gzipped_csv])
def test_wandb_in_every_shape(tmp_path: Path, write: Any) -> None:
    write(tmp_path / "events")
    con = ingested(tmp_path / "events", tmp_path)
    query = (
        "SELECT device, time_ns, util_pct, power_w, mem_used_bytes, sm_active_pct, tensor_active_pct FROM samples ORDER BY 1, 2"
    )
    assert rows(con, query) == [
        (0, 1795226089250000000, 97.0, 506.7, 5146279936, 91.0, 31.0),
        (0, 1795226104250000000, 95.0, 500.1, 5146279936, 88.0, 30.0),
        (0, 1795226119250000000, 88.0, None, None, None, None),  # Only the utilization was logged.
        (1, 1795226104250000000, 3.0, None, None, None, None),
        (1, 1795226119250000000, 4.0, None, None, None, None),
    ]
    assert "ratios" in diagnostics(con)["scale_inferred"][0]


@pytest.mark.parametrize("shape", ["lines", "list", "answers"])
def test_mlflow_in_every_shape(tmp_path: Path, shape: str) -> None:
    lines = (TELEMETRY / "mlflow.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    shapes = {
        "lines": "\n".join([*lines, "{cut"]),
        "list": json.dumps(records, indent=1),
        "answers": json.dumps({"metrics": records}),
    }
    (tmp_path / "history").write_text(shapes[shape])
    con = ingested(tmp_path / "history", tmp_path)
    assert rows(con, "SELECT device, time_ns, util_pct, power_w, mem_used_bytes FROM samples ORDER BY 1, 2") == [
        (0, 1795226089250000000, 97.0, 506.7, 5146300000),  # MLflow's megabytes are 10^6 bytes
        (0, 1795226099250000000, 95.0, None, None),
        (1, 1795226099250000000, 3.0, None, None),
    ]


def test_mlflow_without_a_gpu_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"key": "system/cpu_utilization_percentage", "value": 1, "timestamp": 1}')
    with pytest.raises(SourceError, match="nvidia-ml-py"):
        ingested(tmp_path / "x.json", tmp_path)


def test_wandb_shares_in_percent_stay_percent(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("_timestamp,system.gpu.0.smActive\n1795226089,0.4\n1795226104,55.5\n")
    assert rows(ingested(path, tmp_path), "SELECT sm_active_pct FROM samples ORDER BY time_ns") == [(0.4,), (55.5,)]


def test_wandb_with_relative_times_only(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('"Relative Time (Process)","my run - system/gpu.0.gpu"\n1.5,50\n16.5,60\n')
    con = ingested(path, tmp_path)
    assert rows(con, "SELECT time_ns, util_pct FROM samples ORDER BY 1") == [(1_500_000_000, 50.0), (16_500_000_000, 60.0)]
    assert rows(con, "SELECT clock FROM recording") == [("unknown",)]


def test_foreign_parquet_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    path.write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(SourceError, match="Export it as CSV"):
        ingested(path, tmp_path)
