"""Fixtures of screen tests: without a browser, every picture counts as drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import BASE_NS, matmul_loop
from tests.support.pages import run_of
from tests.support.telemetry_files import telemetry_file


@pytest.fixture(autouse=True)
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sawtooth.app.page.timeline.picture.drawn", lambda: True)


@pytest.fixture
def loop(app_data: DataFolder, tmp_path: Path) -> str:
    """Return a run with telemetry whose GPU works 700 of every 1000 µs, 600 on tensor cores."""
    trace = matmul_loop().write(tmp_path / "loop.json")
    # 40 % and 100 % in turn, 70 % on average, as in the trace: the profiled steps represent the run
    samples = telemetry_file(tmp_path / "telemetry.jsonl", start_ns=BASE_NS - 3_000_000_000, low=40)
    return run_of(app_data, trace, samples)
