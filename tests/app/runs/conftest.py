"""Fixtures of the tests of the Runs screen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sawtooth.analysis.store.library import Library
from sawtooth.app.runs.card import card_of
from sawtooth.ingest.schema import DataFolder
from tests.support.chrome_trace import matmul_loop
from tests.support.pages import run_of


@pytest.fixture
def four_new(app_data: DataFolder, tmp_path: Path) -> list[str]:
    """Return four new runs; the first two are tagged and take 1 ms and 0.8 ms per step."""
    ids = []
    for number, (step, product) in enumerate([(1000, 600), (800, 400), (900, 500), (1100, 700)]):
        ids.append(run_of(app_data, matmul_loop(step_us=step, matmul_us=product).write(tmp_path / f"run{number}.json")))
        if number < 2:
            app_data.write_manifest(msgspec.structs.replace(app_data.read_manifest(ids[-1]), tags=["nightly"]))
    return ids


@pytest.fixture
def four(app_data: DataFolder, four_new: list[str]) -> list[str]:
    for run_id in four_new:
        card_of(app_data.read_manifest(run_id), Library(app_data))
    return four_new
