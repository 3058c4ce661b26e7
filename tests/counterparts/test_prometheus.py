"""Tests with a real Prometheus that scrapes a training under ``sawtooth run`` and a server.

The training runs with ``--metrics``. Prometheus is Debian's package:

apt-get install prometheus && python -m pytest -m slow tests/counterparts/test_prometheus.py
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from sawtooth.app.publish.values import values_of
from sawtooth.ingest.schema import DataFolder
from tests.support.paths import ROOT
from tests.support.prepared import prepared, prepared_result
from tests.support.servers import TOKEN, free_port, start_server, without_bundled

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")]
STARVED = ROOT / "sample_traces" / "resnet_starved"
FILES = (STARVED / "trace.json.gz", STARVED / "nvml.jsonl")
WAITS_SECONDS = 60.0
STEP_SECONDS = 0.02
TRAINING = f"""
import time, torch
weight = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    weight.grad = torch.ones(8)
    optimizer.step()
    time.sleep({STEP_SECONDS})
"""
CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: training
    static_configs: [{{targets: ["{training}"]}}]
  - job_name: sawtooth
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{server}"]}}]
"""


class Processes:
    def __init__(self, folder: Path) -> None:
        self._folder, self._running = folder, list[subprocess.Popen[bytes]]()

    def start(self, *words: str, **environment: str) -> None:
        with (self._folder / f"{len(self._running)}.log").open("wb") as log:
            self._running.append(
                subprocess.Popen(words, cwd=self._folder, env={**os.environ, **environment}, stdout=log, stderr=log)
            )

    def end(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait(30)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    several = Processes(tmp_path)
    yield several
    several.end()


def asked(address: str, expression: str) -> Callable[[], list[dict[str, Any]]]:
    """Return a function that asks Prometheus for the present values of ``expression``."""

    def ask() -> list[dict[str, Any]]:
        try:
            with urlopen(f"{address}/api/v1/query?query={quote(expression)}", timeout=5) as reply:
                values: list[dict[str, Any]] = json.load(reply)["data"]["result"]
                return values
        except URLError:
            return []

    return ask


def wait_for(ask: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    until = time.monotonic() + WAITS_SECONDS
    while not (values := ask()):
        assert time.monotonic() < until, "Prometheus has no such value"
        time.sleep(0.5)
    return values


def test_prometheus_scrapes_a_training_and_the_server(tmp_path: Path, processes: Processes) -> None:
    data = without_bundled(tmp_path / "data")
    run = prepared(DataFolder(data), *FILES)
    server = start_server(data)
    try:
        (tmp_path / "train.py").write_text(TRAINING)
        (tmp_path / "token").write_text(TOKEN)
        training, port = f"127.0.0.1:{free_port()}", free_port()
        options = ["--metrics", training, "--no-profile", "-o", str(tmp_path / "run.sawtooth")]
        processes.start(sys.executable, "-m", "sawtooth", "run", *options, sys.executable, "train.py", PYTHONPATH=str(ROOT))
        config = tmp_path / "prometheus.yml"
        config.write_text(CONFIG.format(training=training, token=tmp_path / "token", server=server.url.removeprefix("http://")))
        store = ["--storage.tsdb.path", str(tmp_path / "series"), "--web.listen-address", f"127.0.0.1:{port}"]
        processes.start("prometheus", "--config.file", str(config), *store)
        at = f"http://127.0.0.1:{port}"

        (step,) = wait_for(asked(at, "sawtooth_step_time_seconds"))
        assert step["metric"]["job"] == "training"
        assert STEP_SECONDS < float(step["value"][1]) < 3 * STEP_SECONDS
        (of_run,) = wait_for(asked(at, "sawtooth_run_step_time_seconds"))
        right = values_of(prepared_result(*FILES), "")
        assert of_run["metric"]["run"] == run.name
        assert float(of_run["value"][1]) == pytest.approx(right["step_time_ms"] / 1000)
        board = json.loads((ROOT / "docs" / "grafana" / "sawtooth.json").read_text())
        asks = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        assert any(asked(at, expression)() for expression in asks)
        assert {value["value"][1] for value in wait_for(asked(at, "up"))} == {"1"}
    finally:
        server.stop()
