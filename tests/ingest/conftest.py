"""The tables of an intact trace, for several tests of ingest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sawtooth.ingest.recording import ingest_file
from sawtooth.ingest.schema import DataFolder
from tests.support import sound_trace
from tests.support.recorded_tables import read


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return the rows of the intact trace's tables, by table."""
    root = tmp_path_factory.mktemp("sound")
    (root / "t.json").write_bytes(sound_trace.GOOD)
    folder = DataFolder(root / "data")
    return read(folder, ingest_file(root / "t.json", folder))[0]


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    return DataFolder(tmp_path / "data").create()
