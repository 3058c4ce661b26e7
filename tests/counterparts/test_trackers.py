"""Tests of ``sawtooth publish`` with the real trackers, and of the data read back from them.

Each library writes to its own server or files.

pip install wandb mlflow trackio tensorboard && python -m pytest -m slow tests/counterparts
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.prepared import prepared_result
from tests.support.servers import free_port

pytestmark = pytest.mark.slow
STARVED = ROOT / "sample_traces" / "resnet_starved"
FILES = (STARVED / "trace.json.gz", STARVED / "nvml.jsonl")
STARTS_SECONDS = 120.0
STEP = "sawtooth/step_time_ms"


def _needs(library: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"pip install {library}")


def python(*words: str, **environment: str) -> str:
    """Run this Python in its own process, because each library leaves threads and settings behind."""
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def publish(tracker: str, *more: str, **environment: str) -> dict[str, Any]:
    files = [str(path) for path in FILES]
    sentence = python("-m", "sawtooth", "publish", *files, "--to", tracker, "--project", "net", "--json", *more, **environment)
    answer: dict[str, Any] = json.loads(sentence[sentence.index('{"tracker"') :])
    assert answer["values"][STEP] == prepared_result(*FILES).metrics["best_step_time_ms"].value
    return answer


def answers(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as reply:
        return bool(reply.status == 200)
    return False


@contextlib.contextmanager
def served(command: list[str], address: str, folder: Path, **environment: str) -> Iterator[str]:
    """Run a server until the block ends; it writes into ``folder``."""
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env={**os.environ, **environment}, stdout=log, stderr=log
        )
    try:
        until = time.monotonic() + STARTS_SECONDS
        while not answers(address):
            assert server.poll() is None and time.monotonic() < until, (folder / "server.log").read_text()[-3000:]
            time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait(30)


def test_mlflow_s_server_gets_numbers_files_and_the_link(tmp_path: Path) -> None:
    _needs("mlflow")
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    store = ["--backend-store-uri", f"sqlite:///{tmp_path}/runs.db", "--artifacts-destination", str(tmp_path / "files")]
    with served([*command, *store], f"{address}/health", tmp_path):
        sent = publish("mlflow", "--url", "http://here/verdict?run=1", MLFLOW_TRACKING_URI=address)
        read = (
            "import json, mlflow; c = mlflow.MlflowClient(); r = mlflow.search_runs(search_all_experiments=True, output_format='list')[0];"
            "print(json.dumps([r.data.metrics, r.data.tags, [f.path for f in c.list_artifacts(r.info.run_id, 'sawtooth')]]))"
        )
        metrics, tags, files = json.loads(python("-c", read, MLFLOW_TRACKING_URI=address).splitlines()[-1])
    assert metrics == pytest.approx(sent["values"])
    assert tags["sawtooth.url"] == "http://here/verdict?run=1"
    assert files == ["sawtooth/sawtooth_report.html", "sawtooth/sawtooth_report.json"]


def test_mlflow_s_own_system_metrics_are_read_as_telemetry(tmp_path: Path) -> None:
    """The guide's script writes what MLflow's sampler logged; ``sawtooth ingest`` reads it."""
    _needs("mlflow")
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/runs.db"}
    python("-c", SAMPLED, **store)
    guide = (ROOT / "docs" / "guides" / "integrations.md").read_text()
    script = guide.split("```python\nimport json, mlflow\n")[1].split("```")[0]
    newest = 'mlflow.search_runs(search_all_experiments=True, output_format="list")[0].info.run_id'
    moves = f"import os; os.chdir({str(tmp_path)!r})\nimport json, mlflow\n"
    python("-c", moves + script.replace('"RUN"', newest), **store)
    rows = [json.loads(line) for line in (tmp_path / "mlflow.jsonl").read_text().splitlines()]
    assert {"system/cpu_utilization_percentage", "system/gpu_0_utilization_percentage"} <= {row["key"] for row in rows}
    report = json.loads(python("-m", "sawtooth", "report", str(tmp_path / "mlflow.jsonl"), "--json"))
    assert [item["kind"] for item in report["run"]["recordings"]] == ["telemetry"]


# MLflow samples GPUs only with NVML. On a machine without NVML, the script logs two GPU values under MLflow's names.
SAMPLED = """
import time, mlflow
with mlflow.start_run(log_system_metrics=False) as run:
    from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor
    monitor = SystemMetricsMonitor(run.info.run_id, sampling_interval=0.2, samples_before_logging=1)
    monitor.start()
    for i in range(40):
        mlflow.log_metrics({"system/gpu_0_utilization_percentage": 40.0 + i % 3, "system/gpu_0_memory_usage_megabytes": 900.0}, step=i)
        time.sleep(0.1)
    monitor.finish()
"""


def test_trackio_s_server_gets_numbers_and_the_report(tmp_path: Path) -> None:
    _needs("trackio")
    address = f"http://127.0.0.1:{(port := free_port())}"
    show = f"import trackio; trackio.show(open_browser=False, block_thread=True, host='127.0.0.1', server_port={port})"
    here, there = tmp_path / "here", tmp_path / "server"
    here.mkdir()
    there.mkdir()
    token = {"TRACKIO_WRITE_TOKEN": "a-token-of-this-test"}
    with served(["-c", show], address, there, TRACKIO_DIR=str(there), **token):
        sent = publish("trackio", TRACKIO_DIR=str(here), TRACKIO_SERVER_URL=address, **token)
    read = (
        "import json; from trackio.sqlite_storage import SQLiteStorage as S; (name,) = S.get_runs('net'); rows = S.get_logs('net', name);"
        "print(json.dumps([name, {k: v for row in rows for k, v in row.items()}], default=str))"
    )
    name, values = json.loads(python("-c", read, TRACKIO_DIR=str(there)).splitlines()[-1])
    assert name in sent["where"]
    assert {key: values[key] for key in sent["values"]} == pytest.approx(sent["values"])
    assert "sawtooth/report" in values


def test_wandb_keeps_an_offline_run(tmp_path: Path) -> None:
    _needs("wandb")
    offline = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    sent = publish("wandb", "--url", "http://here", **offline)
    (file,) = tmp_path.rglob("*.wandb")
    content = file.read_bytes()
    assert all(name.encode() in content for name in sent["values"])
    assert b"http://here" in content and b"offline run" in sent["where"].encode()


def test_tensorboard_s_reader_finds_every_number(tmp_path: Path) -> None:
    _needs("tensorboard")
    sent = publish("tensorboard", "--folder", str(tmp_path))
    read = (
        "import json, sys; from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as E;"
        "e = E(sys.argv[1]); e.Reload(); print(json.dumps({t: e.Scalars(t)[-1].value for t in e.Tags()['scalars']}))"
    )
    values = json.loads(python("-c", read, sent["where"]).splitlines()[-1])
    assert values == pytest.approx(sent["values"], rel=1e-6)  # TensorBoard's scalars have 32 bits
