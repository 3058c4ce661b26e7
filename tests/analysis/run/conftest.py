"""A run without GPU work, for several tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from sawtooth.analysis.run.model import RunResult
from sawtooth.ingest.schema import DataFolder
from tests.support.host_loops import analysed, loop


@pytest.fixture
def result(tmp_path: Path) -> RunResult:
    return analysed(DataFolder(tmp_path / "data").create(), loop().write(tmp_path / "host.json"))
