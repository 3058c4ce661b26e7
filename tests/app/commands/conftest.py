"""Fixtures of the tests of commands: two traces, and a data folder with one run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.chrome_trace import matmul_loop
from tests.support.command_line import run


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """Return a folder with one run in it and another in a folder below."""
    folder = tmp_path / "traces"
    (folder / "below").mkdir(parents=True)
    matmul_loop(steps=6).write(folder / "first.json")
    matmul_loop(steps=6, step_us=800, matmul_us=400).write(folder / "below" / "second.json")
    return folder


@pytest.fixture(scope="module")
def ingested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ingested")
    trace = matmul_loop(steps=6).write(place / "first.json")
    assert run("ingest", str(trace), "--name", "my  first run", "--data", str(place / "data")).exit_code == 0
    return place / "data"


@pytest.fixture
def data(ingested: Path, tmp_path: Path) -> str:
    """Return a data folder of the test's own, with one run."""
    return str(shutil.copytree(ingested, tmp_path / "data"))
