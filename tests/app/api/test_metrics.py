"""Tests of ``/metrics`` of the server and of the sampler: names, units and access."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

from sawtooth.app.api import metrics, routes
from sawtooth.app.publish import prometheus
from sawtooth.app.publish.values import values_of
from sawtooth.app.server.access import AccessMiddleware
from sawtooth.app.settings import settings
from sawtooth.ingest.sampler.clock import SamplerClock
from sawtooth.ingest.sampler.prometheus import EXPORTED, PrometheusSink
from sawtooth.ingest.sampler.segments import SegmentWriter
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
from tests.support.prepared import prepared, prepared_result

STARVED = ROOT / "sample_traces" / "resnet_starved"
FILES = (STARVED / "trace.json.gz", STARVED / "nvml.jsonl")
TOKEN = "a-long-token-of-mine"


def parsed(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the values of each metric with their labels, by Prometheus' own parser."""
    values: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            values.setdefault(sample.name, []).append((sample.labels, sample.value))
    return values


def test_the_server_exports_live_steps_and_the_newest_runs_behind_its_token(
    app_data: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = prepared(app_data, *FILES)
    monkeypatch.setenv("SAWTOOTH_TOKEN", TOKEN)
    settings.cache_clear()
    started = 1_800_000_000_000_000_000
    meta = {"v": 1, "session": "s", "host": "node7", "started_m": 0, "started_w": started, "interval_ns": 10**8, "name": "job"}
    devices = [{"device": 0, "name": "NVIDIA H200", "uuid": "GPU-0", "memory_bytes": 100e9}]
    writer = SegmentWriter(app_data.live / "s", {**meta, "columns": ["util_pct"], "devices": devices})
    for i in range(50):
        writer.write({"k": "tick", "m": i * 10**8, "w": started + i * 10**8, "g": [[40.0]]})
    pace = {"step": 500, "p50_ms": 10.0, "p95_ms": 12.0, "per_s": 98.0, "samples": 32, "flops": None}
    writer.write({"k": "pace", "m": 49 * 10**8, "w": started + 49 * 10**8, **pace})
    writer.sync(0)
    app = Starlette(routes=routes(), middleware=[Middleware(AccessMiddleware, settings=settings())])
    with TestClient(app, base_url="http://localhost:8501") as client:
        assert client.get("/metrics").status_code == 401
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        values = parsed(answer.text)
        monkeypatch.setattr(metrics, "exposition", _without_library)
        assert client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 501
    writer.close()
    assert answer.headers["content-type"].startswith("text/plain")
    right = values_of(prepared_result(*FILES), "")
    assert values["sawtooth_run_step_time_seconds"] == [({"run": run.name}, pytest.approx(right["step_time_ms"] / 1000))]
    lost = {labels["cause"]: value for labels, value in values["sawtooth_run_lost_seconds"]}
    assert lost["data_wait"] == pytest.approx(right["lost_ms/data_wait"] / 1000)
    job = {"session": "job", "host": "node7"}
    assert values["sawtooth_live_step_time_seconds"] == [(job, 0.01)]
    assert values["sawtooth_live_samples_per_second"] == [(job, 98.0 * 32)]
    assert values["sawtooth_live_gpu_utilization_ratio"] == [({**job, "gpu": "0"}, 0.4)]


def test_the_grafana_dashboard_uses_only_existing_metrics() -> None:
    # The dashboard opens without edits: a stable uid, no id, and a data source to choose.
    board = json.loads((ROOT / "docs" / "grafana" / "sawtooth.json").read_text())
    assert board["id"] is None and board["uid"] and board["templating"]["list"][0]["name"] == "datasource"
    asked = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    steps = {"sawtooth_step_time_seconds", "sawtooth_step_time_p95_seconds", "sawtooth_samples_per_second"}
    known = {
        name
        for table in (prometheus.RUN_METRICS, prometheus.STEP_METRICS, prometheus.GPU_METRICS)
        for name, _, _ in table.values()
    }
    assert asked <= known | steps | {name for name, _, _ in EXPORTED.values()} | {"sawtooth_run_lost_seconds"}


def _without_library(*_: Any) -> Any:
    raise ImportError


def test_the_sampler_exports_the_training_s_steps() -> None:
    sink = PrometheusSink(SamplerClock())
    assert "sawtooth_step" not in parsed(sink.text())
    sink.write(
        {
            "k": "pace",
            "m": SamplerClock().monotonic_ns(),
            "w": 0,
            "step": 500,
            "p50_ms": 10.0,
            "p95_ms": 12.0,
            "per_s": 98.0,
            "samples": 32,
        }
    )
    values = parsed(sink.text())
    assert {name: value for name, ((_, value),) in values.items() if name.startswith("sawtooth_s") and "age" not in name} == {
        "sawtooth_samples_total": 0.0,
        "sawtooth_step": 500.0,
        "sawtooth_step_time_seconds": 0.01,
        "sawtooth_step_time_p95_seconds": 0.012,
        "sawtooth_steps_per_second": 98.0,
        "sawtooth_samples_per_second": 3136.0,
    }
    assert "sawtooth_flops_per_second" not in values
